"""ElasticMQ, the peer of our queues among servers of the SQS API: peer.py says how it is fetched and started."""
