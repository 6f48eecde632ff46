"""One file per API. A handler opens with its versions, its behaviour and its gaps."""
