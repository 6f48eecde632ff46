"""What queues have buried, as a report and as a list of what to send back. Plain Python over the small tables that the steps make.

| file | what lives there |
|---|---|
| `wishes` | what a report is asked for, and which letters are to go on the list |
| `findings` | everything that one report tells |
| `page` | the report as one HTML file |
| `redrive_list` | the file that `penstock queues redrive --ids-from` takes |
"""
