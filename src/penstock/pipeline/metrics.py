"""A pipeline's progress as Prometheus reads it, and the small server that offers it at /metrics.

One port, one page, no access control: it belongs on a network that you trust, and listens where it is told to and nowhere else.
"""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.progress import RUNNING, PipelineProgress, StageProgress

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Name, kind, what it says, and what of a stage it is.
STAGE_METRICS: tuple[tuple[str, str, str, Callable[[StageProgress], float | None]], ...] = (
    ("penstock_pipeline_running", "gauge", "1 while the stage's query runs.", lambda stage: float(stage.state == RUNNING)),
    ("penstock_pipeline_rows_read_total", "counter", "Rows that the stage has read.", lambda stage: stage.rows_in),
    ("penstock_pipeline_rows_written_total", "counter", "Rows that it has written, dead letters among them.", lambda stage: stage.rows_out),
    ("penstock_pipeline_dead_letters_total", "counter", "Rows that went to its dead letters.", lambda stage: stage.dead_letters),
    ("penstock_pipeline_batches_total", "counter", "Micro-batches that are done.", lambda stage: stage.batches),
    ("penstock_pipeline_rows_per_second", "gauge", "Rows a second in the last batch.", lambda stage: stage.rows_per_second),
    ("penstock_pipeline_batch_seconds", "gauge", "How long the last batch took.", lambda stage: stage.batch_ms / 1000),
    ("penstock_pipeline_lag_offsets", "gauge", "Offsets between the last batch's end and its topics' ends.", lambda stage: stage.lag),
)
JOB_METRIC = ("penstock_pipeline_job_total", "counter", "What the job counts, by name.")


def metrics_text(progress: PipelineProgress) -> str:
    written: list[str] = []
    for name, kind, meaning, value_of in STAGE_METRICS if progress.stages else ():
        written += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        values = ((stage, value_of(stage)) for stage in progress.stages.values())
        written += [
            f"{name}{_labels(pipeline=progress.name, stage=stage.name)} {value:.16g}" for stage, value in values if value is not None
        ]
    if progress.counts:
        name, kind, meaning = JOB_METRIC
        written += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
        written += [f"{name}{_labels(pipeline=progress.name, what=what)} {value:.16g}" for what, value in progress.counts.items()]
    return "".join(f"{line}\n" for line in written)


class MetricsServer:
    """Use in `with`; `address` is where it listens, with the port that it got where 0 was asked for."""

    def __init__(self, host: str, port: int, page: Callable[[], str]) -> None:
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(page))
        except OSError as failure:
            raise PipelineComplaint(
                f"metrics cannot listen at {host}:{port}: {failure.strerror}", "choose another port, or 0 for any"
            ) from None
        self._server.daemon_threads = True
        self.address = f"{host}:{self._server.server_address[1]}"

    def __enter__(self) -> "MetricsServer":
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_known = self.path.split("?")[0] == "/metrics"
            body = page().encode() if is_known else b"the metrics are at /metrics\n"
            self.send_response(200 if is_known else 404)
            self.send_header("Content-Type", CONTENT_TYPE if is_known else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: the terminal shows the pipeline's progress."""

    return Handler


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
