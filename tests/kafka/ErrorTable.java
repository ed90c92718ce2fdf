import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Prints Kafka's own table of error codes: code, name, retriable, refresh. */
public class ErrorTable {
    public static void main(String[] args) {
        for (Errors error : Errors.values()) {
            boolean refresh = false;
            for (Class<?> c = error.exception() == null ? null : error.exception().getClass(); c != null; c = c.getSuperclass())
                refresh |= c.getSimpleName().equals("RefreshRetriableException");
            System.out.println(error.code() + "\t" + error.name() + "\t"
                + (error.exception() instanceof RetriableException) + "\t" + refresh);
        }
    }
}
