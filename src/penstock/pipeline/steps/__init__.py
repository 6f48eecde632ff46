"""Functions from frame to frame. They know no topics and start nothing; the same step works on a stream and on a table.

| file | what lives there |
|---|---|
| `parsing` | JSON taken apart, rules checked; what is wrong gets a reason and becomes a dead letter |
| `times` | the same thing only once; sums over windows |
| `tables` | joining with a compacted topic as a table |
| the others | steps of one job, under its name |
"""
