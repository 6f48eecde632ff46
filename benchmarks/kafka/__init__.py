"""Apache Kafka as a peer, from Maven by its coordinates (pom.xml), kept in .cache/."""
