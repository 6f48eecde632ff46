"""What reports of several jobs share: the look of a page, its tables, and its plots. No job's figures are known here.

| file | what lives there |
|---|---|
| `plots` | curves and bars as SVG |
| `pages` | one HTML file that needs nothing else, and tables in it |
| `windows` | how long the windows of time are that figures are told by |
"""
