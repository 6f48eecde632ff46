"""`orders`, the worked example: raw orders → validated → enriched with customers → revenue per minute, each order counted exactly once.

    orders.raw ─ validated ─► orders.valid ─ enriched ─► orders.enriched ─ revenue ─► orders.revenue
                     └──────► orders.dead        ▲
                                             customers (compacted)

Orders that come twice are counted once, late ones in the minute that they belong to; what is broken or too late stands among the dead
letters with its reason. A minute's revenue is written once, when no order can come for it any more.
Not here: the steps themselves (steps/orders.py), and orders to try it with (examples/).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.pipeline.options import Options
from penstock.pipeline.pipeline import Job, JobOption, Pipeline
from penstock.pipeline.stage import Context, FromTopic, Stage, ToTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def pipeline(options: Mapping[str, str]) -> Pipeline:
    told = Options(options)
    topics, partitions = options["topics"], told.whole("partitions", None, low=1)
    source = {"maxOffsetsPerTrigger": str(told.whole("rows", None, low=1))}
    return Pipeline(
        "orders",
        [
            Stage(
                "validated",
                FromTopic(f"{topics}.raw", options=source),
                validated,
                ToTopic(f"{topics}.valid", partitions),
                dead_letters=f"{topics}.dead",
            ),
            Stage("enriched", FromTopic(f"{topics}.valid", options=source), enriched, ToTopic(f"{topics}.enriched", partitions)),
            Stage("revenue", FromTopic(f"{topics}.enriched", options=source), revenue, ToTopic(f"{topics}.revenue", 1)),
        ],
        summary=JOB.summary,
    )


def validated(raw: "DataFrame", context: Context) -> "DataFrame":
    from penstock.pipeline.steps import orders

    return orders.validated(raw)


def enriched(valid: "DataFrame", context: Context) -> "DataFrame":
    from penstock.pipeline.steps import orders
    from penstock.pipeline.steps.tables import table

    customers = orders.customers_of(table(context, context.options["customers"]))
    with_customers = orders.enriched(orders.opened(valid), customers)
    return orders.keyed(with_customers, with_customers.customer_id)


def revenue(enriched: "DataFrame", context: Context) -> "DataFrame":
    from pyspark.sql import functions as F

    from penstock.pipeline.steps import orders

    sums = orders.revenue(orders.opened(enriched, orders.ENRICHED))
    return orders.keyed(sums, F.concat_ws("/", sums.minute, sums.country))


JOB = Job(
    "orders",
    "raw orders → validated → enriched with customers → revenue per minute",
    options=(
        JobOption("topics", "what the names of its topics begin with: NAME.raw is read, NAME.valid and so on are written", "orders"),
        JobOption("customers", "the compacted topic of customers", "customers"),
        JobOption("partitions", "of the topics that it creates", "2"),
        JobOption("rows", "how many records a stage takes at a time at most", "100000"),
    ),
    build=pipeline,
)
