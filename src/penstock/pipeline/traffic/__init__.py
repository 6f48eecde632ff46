"""What traffic's figures mean, and the report that shows them. Plain Python over the small tables that the steps make of the log.

| file | what lives there |
|---|---|
| `wishes` | what a report is asked for |
| `sampling` | what groups had committed, looked at from time to time and kept as records |
| `expected` | the rate that was to be expected, and windows that differ from it |
| `skew` | heavy keys, and the salt or number of partitions that would spread them |
| `findings` | everything that one report tells |
| `page` | the report as one HTML file that needs nothing else |
"""
