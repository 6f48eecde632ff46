// Apache Kafka's own admin client against a broker.

import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.serialization.*;

public class AdminCalls extends Clients {
    static String node;

    static void add() {
        add("settings of a topic", AdminCalls::topicSettings);
        add("settings that cannot be", AdminCalls::refusedSettings);
        add("settings of a node", AdminCalls::nodeSettings);
        add("settings of every node", AdminCalls::everyNodeSettings);
        add("more partitions", AdminCalls::morePartitions);
        add("deleted records", AdminCalls::deletedRecords);
        add("log directories", AdminCalls::logDirectories);
        add("producers", AdminCalls::producers);
        add("reassignments", AdminCalls::reassignments);
        add("config resources", AdminCalls::configResources);
        add("many topics described", AdminCalls::manyTopics);
        add("a position with its epoch", AdminCalls::validatedPosition);
    }

    /** Apache Kafka's brokers hear of a change a little after the answer that it was made. */
    static void until(Callable<Boolean> claim, String what) throws Exception {
        Waiting.until(what, () -> {
            try {
                return claim.call();
            } catch (ExecutionException | NullPointerException notYet) {
                return false;
            }
        });
    }

    static void refused(Class<?> kind, Callable<KafkaFuture<?>> call) throws Exception {
        try {
            call.call().get();
            throw new IllegalStateException("taken instead of refused with " + kind.getSimpleName());
        } catch (ExecutionException failure) {
            claim(kind.isInstance(failure.getCause()), failure.getCause());
        }
    }

    static String topic(int partitions, Map<String, String> settings) throws Exception {
        String name = "java-admin-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(settings))).all().get();
        return name;
    }

    static ConfigResource of(String topic) {
        return new ConfigResource(ConfigResource.Type.TOPIC, topic);
    }

    static Config described(ConfigResource resource) throws Exception {
        var options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        return admin.describeConfigs(List.of(resource), options).all().get().get(resource);
    }

    static KafkaFuture<Void> change(ConfigResource resource, boolean isTrial, AlterConfigOp... changes) {
        return admin.incrementalAlterConfigs(Map.of(resource, List.of(changes)), new AlterConfigsOptions().validateOnly(isTrial)).all();
    }

    static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), OpType.SET);
    }

    static AlterConfigOp delete(String name) {
        return new AlterConfigOp(new ConfigEntry(name, null), OpType.DELETE);
    }

    static void produce(String topic, int count) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "linger.ms", 0);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) producer.send(new ProducerRecord<>(topic, 0, null, "v" + number)).get();
        }
    }

    static void topicSettings() throws Exception {
        ConfigResource resource = of(topic(1, Map.of("retention.ms", "60000", "index.interval.bytes", "8192")));
        until(() -> described(resource).entries().size() > 10, "never described");
        claim(described(resource).get("retention.ms").type() == ConfigEntry.ConfigType.LONG, described(resource).get("retention.ms"));
        ConfigEntry entry = described(resource).get("index.interval.bytes");
        claim(entry.value().equals("8192") && entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, entry);
        claim(entry.type() == ConfigEntry.ConfigType.INT && entry.documentation() != null && !entry.isReadOnly(), entry);
        List<ConfigEntry.ConfigSynonym> synonyms = entry.synonyms();
        claim(synonyms.get(0).value().equals("8192"), synonyms);
        claim(synonyms.get(synonyms.size() - 1).source() == ConfigEntry.ConfigSource.DEFAULT_CONFIG, synonyms);
        claim(described(resource).entries().stream().allMatch(each -> each.source() != ConfigEntry.ConfigSource.UNKNOWN), "unknown source");
        change(resource, true, set("segment.ms", "5000")).get();
        claim(described(resource).get("segment.ms").isDefault(), "a trial changed it");
        var append = new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), OpType.APPEND);
        change(resource, false, set("segment.ms", "5000"), delete("retention.ms"), append).get();
        until(() -> described(resource).get("retention.ms").isDefault(), "retention.ms stays");
        Config after = described(resource);
        claim(after.get("segment.ms").value().equals("5000") && after.get("retention.ms").isDefault(), after);
        claim(after.get("cleanup.policy").value().equals("delete,compact"), after.get("cleanup.policy"));
        change(resource, false, new AlterConfigOp(new ConfigEntry("cleanup.policy", "delete"), OpType.SUBTRACT)).get();
        until(() -> described(resource).get("cleanup.policy").value().equals("compact"), "not subtracted");
    }

    static void refusedSettings() throws Exception {
        ConfigResource resource = of(topic(1, Map.of()));
        refused(InvalidConfigurationException.class, () -> change(resource, false, set("retention.ms", "soon")));
        refused(InvalidConfigurationException.class, () -> change(resource, false, set("no.such.setting", "1")));
        refused(InvalidConfigurationException.class, () -> change(resource, false, set("max.message.bytes", "2000"), set("segment.ms", "0")));
        claim(described(resource).get("max.message.bytes").isDefault(), "half of it was stored");
        refused(UnknownTopicOrPartitionException.class, () -> change(of("java-nowhere"), false, set("retention.ms", "1")));
        refused(UnknownTopicOrPartitionException.class, () -> admin.describeConfigs(List.of(of("java-nowhere"))).all());
        ConfigResource own = new ConfigResource(ConfigResource.Type.BROKER, node);
        refused(InvalidRequestException.class, () -> change(own, false, set("node.id", "77")));
    }

    static void nodeSettings() throws Exception {
        ConfigResource own = new ConfigResource(ConfigResource.Type.BROKER, node);
        ConfigEntry id = described(own).get("node.id");
        claim(id.value().equals(node) && id.isReadOnly(), id);
        claim(described(own).get("num.partitions").type() == ConfigEntry.ConfigType.INT, described(own).get("num.partitions"));
    }

    /** A setting that Apache Kafka changes while it runs, too. */
    static void everyNodeSettings() throws Exception {
        ConfigResource every = new ConfigResource(ConfigResource.Type.BROKER, "");
        ConfigResource own = new ConfigResource(ConfigResource.Type.BROKER, node);
        change(every, false, set("producer.id.expiration.ms", "70000000")).get();
        until(() -> described(every).get("producer.id.expiration.ms").value().equals("70000000"), "every node");
        until(() -> described(own).get("producer.id.expiration.ms").value().equals("70000000"), "this node");
        ConfigEntry entry = described(own).get("producer.id.expiration.ms");
        claim(entry.source() == ConfigEntry.ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, entry);
        change(every, false, delete("producer.id.expiration.ms")).get();
        until(() -> described(own).get("producer.id.expiration.ms").isDefault(), "not taken back");
    }

    static void morePartitions() throws Exception {
        String topic = topic(2, Map.of());
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4)), new CreatePartitionsOptions().validateOnly(true)).all().get();
        until(() -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 2, "a trial grew it");
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        until(() -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 4, "not grown");
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            claim(producer.send(new ProducerRecord<>(topic, 3, null, "v")).get().offset() == 0, "offset");
        }
        refused(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all());
        refused(InvalidPartitionsException.class, () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all());
        refused(InvalidReplicaAssignmentException.class,
            () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5, List.of(List.of(4711))))).all());
        refused(UnknownTopicOrPartitionException.class, () -> admin.createPartitions(Map.of("java-nowhere", NewPartitions.increaseTo(4))).all());
    }

    static void deletedRecords() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 6);
        var where = new TopicPartition(topic, 0);
        claim(admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(where).get().lowWatermark() == 4, "low");
        claim(admin.listOffsets(Map.of(where, OffsetSpec.earliest())).partitionResult(where).get().offset() == 4, "earliest");
        claim(admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(-1))).lowWatermarks().get(where).get().lowWatermark() == 6, "all");
        refused(org.apache.kafka.common.errors.OffsetOutOfRangeException.class, () -> admin.deleteRecords(Map.of(where, RecordsToDelete.beforeOffset(7))).all());
        var kept = new TopicPartition(topic(1, Map.of("cleanup.policy", "compact")), 0);
        refused(PolicyViolationException.class, () -> admin.deleteRecords(Map.of(kept, RecordsToDelete.beforeOffset(0))).all());
    }

    static void logDirectories() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 3);
        int id = Integer.parseInt(node);
        var directories = admin.describeLogDirs(List.of(id)).allDescriptions().get().get(id);
        claim(directories.size() == 1, directories);
        var directory = directories.values().iterator().next();
        claim(directory.error() == null && directory.usableBytes().isPresent(), directory);
        claim(directory.replicaInfos().get(new TopicPartition(topic, 0)).size() > 0, directory);
        var replica = new TopicPartitionReplica(topic, 0, id);
        claim(admin.describeReplicaLogDirs(List.of(replica)).all().get().get(replica).getCurrentReplicaLogDir() != null, "replica");
    }

    static void producers() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 3);
        var where = new TopicPartition(topic, 0);
        var states = admin.describeProducers(List.of(where)).partitionResult(where).get().activeProducers();
        claim(states.size() == 1 && states.get(0).lastSequence() == 2, states);
        claim(states.get(0).currentTransactionStartOffset().isEmpty(), states);
    }

    static void reassignments() throws Exception {
        claim(admin.listPartitionReassignments().reassignments().get().isEmpty(), "something moves");
    }

    static void configResources() throws Exception {
        String topic = topic(1, Map.of());
        var types = Set.of(ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER);
        Collection<ConfigResource> listed = admin.listConfigResources(types, new ListConfigResourcesOptions()).all().get();
        claim(listed.contains(of(topic)) && listed.contains(new ConfigResource(ConfigResource.Type.BROKER, node)), listed);
    }

    /** More partitions than fit one answer: the client follows the cursor. */
    static void manyTopics() throws Exception {
        List<String> names = new ArrayList<>();
        for (int number = 0; number < 5; number++) names.add(topic(7, Map.of()));
        var options = new DescribeTopicsOptions().partitionSizeLimitPerResponse(4);
        until(() -> {
            var told = admin.describeTopics(TopicCollection.ofTopicNames(names), options).allTopicNames().get();
            return told.size() == 5 && told.values().stream().allMatch(each -> each.partitions().size() == 7);
        }, "not all of them");
        refused(UnknownTopicOrPartitionException.class, () -> admin.describeTopics(List.of("java-nowhere")).allTopicNames());
    }

    /** The consumer asks where the epoch of its position ended before it fetches from there. */
    static void validatedPosition() throws Exception {
        String topic = topic(1, Map.of());
        produce(topic, 5);
        var where = new TopicPartition(topic, 0);
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap);
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(where));
            consumer.seek(where, new OffsetAndMetadata(2, Optional.of(0), ""));
            List<String> values = new ArrayList<>();
            until(() -> {
                consumer.poll(Waiting.ASK).forEach(record -> values.add(record.value()));
                return values.size() >= 3;
            }, "not all of them");
            claim(values.equals(List.of("v2", "v3", "v4")), values);
        }
    }
}
