import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Produces records to partition 0 of topics: BOOTSTRAP on the command line; on stdin one record a line, topic,
 * codec, headers (name:value,...), key and value with tabs between them. The text <null> is null.
 */
public class ProduceRecords {
    public static void main(String[] args) throws Exception {
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] cells = line.split("\t", -1);
            KafkaProducer<String, String> producer = producers.computeIfAbsent(cells[1], codec -> new KafkaProducer<>(
                Map.of("bootstrap.servers", args[0], "compression.type", codec, "linger.ms", 200),
                new StringSerializer(), new StringSerializer()));
            ProducerRecord<String, String> made =
                new ProducerRecord<>(cells[0], 0, orNull(cells[3]), orNull(cells[4]));
            for (String header : cells[2].split(","))
                made.headers().add(header.split(":", 2)[0], header.split(":", 2)[1].getBytes());
            producer.send(made, (metadata, error) -> {
                if (error != null) {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
            });
        }
        producers.values().forEach(KafkaProducer::close);
    }

    private static String orNull(String cell) {
        return cell.equals("<null>") ? null : cell;
    }
}
