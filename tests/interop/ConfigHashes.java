import com.typesafe.config.Config;
import com.typesafe.config.ConfigException;
import com.typesafe.config.ConfigFactory;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/** Prints, for every line of standard input, the hash that Typesafe Config gives to it, or that it is none. */
public class ConfigHashes {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                Config found = ConfigFactory.parseString(line.replace("\\n", "\n"));
                System.out.println(found.hashCode());
            } catch (ConfigException error) {
                System.out.println("error");
            }
        }
    }
}
