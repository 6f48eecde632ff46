"""One partition as clients see it: the log, who may write to it, and how far readers may see."""
