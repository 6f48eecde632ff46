// Where Apache Kafka's own Java producer puts keys. Usage: java -cp JARS WhereKeysGo.java HOST:PORT TOPIC COUNT.
// Sends COUNT records with the keys key-0, key-1, ... and prints their partitions, one a line.

import java.util.*;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;

public class WhereKeysGo {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0]);
        try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
                sent.add(producer.send(new ProducerRecord<>(arguments[1], "key-" + number, "v")));
            }
            for (var each : sent) System.out.println(each.get().partition());
        }
        System.exit(0);
    }
}
