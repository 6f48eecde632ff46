// Apache Kafka's own Java clients against a broker. Usage: RoundTrip HOST:PORT

import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.errors.*;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.*;

public class RoundTrip extends Scenes {
    public static void main(String[] arguments) throws Exception {
        begin(arguments[0]);
        scene("whole record", RoundTrip::wholeRecord);
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) scene("codec " + codec, () -> codec(codec));
        scene("fetch sessions over many partitions", RoundTrip::fetchSessions);
        scene("two consumers with sessions of their own", RoundTrip::twoSessions);
        scene("seek by time", RoundTrip::seekByTime);
        scene("log append time", RoundTrip::logAppendTime);
        scene("too large", RoundTrip::tooLarge);
        scene("self-made topic", RoundTrip::selfMadeTopic);
        scene("admin", RoundTrip::adminCalls);
        scene("topic made again", RoundTrip::topicMadeAgain);
        playAll(3);
    }

    static String topic(int partitions, Map<String, String> settings) throws Exception {
        String name = "java-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(settings))).all().get(Waiting.PATIENCE_MS, TimeUnit.MILLISECONDS);
        return name;
    }

    static KafkaProducer<String, String> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 5, "delivery.timeout.ms", Waiting.PATIENCE_MS));
        config.putAll(more);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(Collection<TopicPartition> where) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false, "auto.offset.reset", "earliest", "fetch.max.wait.ms", 200);
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.assign(where);
        return consumer;
    }

    static List<TopicPartition> partitions(String topic, int count) {
        return IntStream.range(0, count).mapToObj(number -> new TopicPartition(topic, number)).toList();
    }

    static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        Waiting.until(count + " records come", () -> {
            consumer.poll(Waiting.ASK).forEach(found::add);
            return found.size() >= count;
        });
        claim(found.size() == count, found.size() + " records instead of " + count);
        return found;
    }

    static void wholeRecord() throws Exception {
        String topic = topic(2, Map.of());
        long sent = System.currentTimeMillis() - 60_000;
        try (var producer = producer(Map.of()); var consumer = consumer(partitions(topic, 2))) {
            var record = new ProducerRecord<>(topic, 1, sent, "key", "value", List.of(new RecordHeader("h", new byte[] {1}), new RecordHeader("n", null)));
            RecordMetadata place = producer.send(record).get();
            claim(place.partition() == 1 && place.offset() == 0 && place.timestamp() == sent, place);
            producer.send(new ProducerRecord<>(topic, 1, "key", null)).get();
            var found = read(consumer, 2);
            claim(found.get(0).value().equals("value") && found.get(0).timestamp() == sent, found.get(0));
            claim(found.get(0).headers().toArray().length == 2 && found.get(0).headers().lastHeader("n").value() == null, found.get(0).headers());
            claim(found.get(1).value() == null, found.get(1));
        }
    }

    static void codec(String codec) throws Exception {
        String topic = topic(1, Map.of());
        try (var producer = producer(Map.of("compression.type", codec)); var consumer = consumer(partitions(topic, 1))) {
            for (int number = 0; number < 3000; number++) producer.send(new ProducerRecord<>(topic, "value " + number));
            producer.flush();
            var found = read(consumer, 3000);
            for (int number = 0; number < 3000; number++) {
                claim(found.get(number).value().equals("value " + number) && found.get(number).offset() == number, found.get(number));
            }
        }
    }

    /** Records trickle into a few of many partitions, so that most fetches are incremental and name nothing or little. */
    static void fetchSessions() throws Exception {
        int count = 60;
        String topic = topic(count, Map.of());
        try (var producer = producer(Map.of("linger.ms", 0)); var consumer = consumer(partitions(topic, count))) {
            for (int round = 0; round < 30; round++) {
                Set<String> expected = new HashSet<>();
                for (int number = 0; number <= round % 7; number++) {
                    String value = round + ":" + number;
                    expected.add(value);
                    producer.send(new ProducerRecord<>(topic, (round * 13 + number * 5) % count, "k", value)).get();
                }
                var found = read(consumer, expected.size()).stream().map(ConsumerRecord::value).collect(Collectors.toSet());
                claim(found.equals(expected), found + " instead of " + expected);
                if (round % 5 == 4) {  // Partitions leave the session and come back.
                    consumer.pause(partitions(topic, 3));
                    claim(consumer.poll(Waiting.ASK).isEmpty(), "a record came twice");
                    consumer.resume(consumer.paused());
                }
            }
            consumer.assign(partitions(topic, count / 2));
            consumer.seekToBeginning(consumer.assignment());
            long expected = consumer.endOffsets(consumer.assignment()).values().stream().mapToLong(offset -> offset).sum();
            read(consumer, (int) expected);
        }
    }

    static void twoSessions() throws Exception {
        String topic = topic(10, Map.of());
        try (var producer = producer(Map.of("linger.ms", 0)); var first = consumer(partitions(topic, 10)); var second = consumer(partitions(topic, 5))) {
            for (int number = 0; number < 50; number++) producer.send(new ProducerRecord<>(topic, number % 10, "k", "v" + number)).get();
            read(first, 50);
            read(second, 25);
            for (int number = 0; number < 10; number++) producer.send(new ProducerRecord<>(topic, number, "k", "w" + number)).get();
            read(second, 5);
            read(first, 10);
        }
    }

    static void seekByTime() throws Exception {
        String topic = topic(1, Map.of());
        TopicPartition where = new TopicPartition(topic, 0);
        long start = System.currentTimeMillis() - 1_000_000;
        try (var producer = producer(Map.of()); var consumer = consumer(List.of(where))) {
            for (int number = 0; number < 100; number++) producer.send(new ProducerRecord<>(topic, 0, start + number * 1000, "k", "" + number));
            producer.flush();
            var found = consumer.offsetsForTimes(Map.of(where, start + 41_500)).get(where);
            claim(found.offset() == 42 && found.timestamp() == start + 42_000, found);
            claim(consumer.offsetsForTimes(Map.of(where, start + 500_000)).get(where) == null, "a time past the end");
            consumer.seek(where, found.offset());
            claim(read(consumer, 58).get(0).value().equals("42"), "the first after the seek");
            claim(consumer.beginningOffsets(List.of(where)).get(where) == 0 && consumer.endOffsets(List.of(where)).get(where) == 100, "ends");
        }
        var newest = admin.listOffsets(Map.of(where, OffsetSpec.maxTimestamp())).partitionResult(where).get();
        claim(newest.offset() == 99 && newest.timestamp() == start + 99_000, newest);
    }

    static void logAppendTime() throws Exception {
        String topic = topic(1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis() - 5;
        try (var producer = producer(Map.of()); var consumer = consumer(partitions(topic, 1))) {
            var place = producer.send(new ProducerRecord<>(topic, 0, 1000L, "k", "v")).get();
            var record = read(consumer, 1).get(0);
            claim(record.timestampType() == TimestampType.LOG_APPEND_TIME && record.timestamp() >= before, record);
            claim(place.timestamp() == record.timestamp(), place.timestamp());
        }
    }

    static void tooLarge() throws Exception {
        String topic = topic(1, Map.of());
        try (var producer = producer(Map.of("max.request.size", 5_000_000, "buffer.memory", 40_000_000))) {
            producer.send(new ProducerRecord<>(topic, "x".repeat(1_000_000))).get();
            try {
                producer.send(new ProducerRecord<>(topic, "x".repeat(2_000_000))).get();
                claim(false, "it was taken");
            } catch (ExecutionException refused) {
                claim(refused.getCause() instanceof RecordTooLargeException, refused.getCause());
            }
        }
    }

    static void selfMadeTopic() throws Exception {
        String topic = "java-self-made-" + UUID.randomUUID();
        try (var producer = producer(Map.of()); var consumer = consumer(partitions(topic, 1))) {
            producer.send(new ProducerRecord<>(topic, "v")).get();
            read(consumer, 1);
        }
    }

    static void adminCalls() throws Exception {
        String topic = topic(3, Map.of("retention.ms", "3600000"));
        claim(admin.listTopics().names().get().contains(topic), "not listed");
        TopicDescription described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        claim(described.partitions().size() == 3 && !described.topicId().equals(Uuid.ZERO_UUID), described);
        claim(admin.describeTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).allTopicIds().get().size() == 1, "not found by id");
        claim(admin.describeCluster().nodes().get().size() == 1 && admin.describeCluster().clusterId().get() != null, "cluster");
        try {
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            claim(false, "made twice");
        } catch (ExecutionException refused) {
            claim(refused.getCause() instanceof TopicExistsException, refused.getCause());
        }
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).all().get();
        claim(!admin.listTopics().names().get().contains(topic), "still listed");
    }

    /** A producer and a consumer that know the old topic find the new one of the same name by themselves. */
    static void topicMadeAgain() throws Exception {
        String topic = topic(1, Map.of());
        try (var producer = producer(Map.of("metadata.max.age.ms", 500)); var consumer = consumer(partitions(topic, 1))) {
            producer.send(new ProducerRecord<>(topic, "old")).get();
            claim(read(consumer, 1).get(0).value().equals("old"), "old");
            admin.deleteTopics(List.of(topic)).all().get();
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            producer.send(new ProducerRecord<>(topic, "new")).get();
            try (var another = consumer(partitions(topic, 1))) {
                claim(read(another, 1).get(0).value().equals("new"), "new");
            }
        }
    }
}
