"""Records to try pipelines with, the same ones from the same seed.

| file | what lives there |
|---|---|
| `orders` | customers and their orders, with doubles, late ones and broken ones among them |
| `writing` | putting such records into topics |
"""
