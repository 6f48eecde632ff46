"""The page docs/reference/spark.md: the settings of Spark that penstock.pipeline.session makes, with reasons and caveats."""

from penstock.pipeline.session import LOCAL_MASTER, SPARK_SETTINGS, SparkSetting

HEAD = f"""\
# Settings of Spark

<!-- Made by `make reference` from src/penstock/pipeline/session.py; do not edit. -->

What `penstock.pipeline.session()` and `penstock pipeline run` set, each because a measurement asked for it. Settings of the caller
(`--conf`), of spark-submit and of spark-defaults.conf win. Without a master Spark runs on this machine, as `{LOCAL_MASTER}`. Those for one
machine are left out on a cluster. The last column says which can still be changed in a session that runs, and so over Spark Connect.

| setting | value | where | why | when not | while running |
|---|---|---|---|---|---|
"""


def spark_page() -> str:
    return HEAD + "".join(map(_row, SPARK_SETTINGS))


def _row(setting: SparkSetting) -> str:
    changes = "fixed" if setting.is_static else "changes"
    return f"| `{setting.name}` | `{setting.value}` | {setting.place.value} | {setting.reason} | {setting.caveat} | {changes} |\n"
