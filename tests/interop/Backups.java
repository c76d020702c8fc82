// Writes a database that is drawn from a seed, backs it up now and then, and prints what it held at each backup.
//
//     java -cp rocksdbjni.jar Backups.java DIRECTORY SEED
//
// DIRECTORY/backup is what BackupEngine makes. A line is: number of the backup, key, value, in hexadecimal.

import java.util.HexFormat;
import java.util.Random;
import org.rocksdb.BackupEngine;
import org.rocksdb.BackupEngineOptions;
import org.rocksdb.Env;
import org.rocksdb.FlushOptions;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.RocksIterator;

public class Backups {
    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        Random dice = new Random(Long.parseLong(arguments[1]));
        String directory = arguments[0];
        BackupEngineOptions settings = new BackupEngineOptions(directory + "/backup")
            .setShareTableFiles(dice.nextInt(4) > 0)
            .setShareFilesWithChecksum(dice.nextBoolean());
        Options options = new Options().setCreateIfMissing(true).setEnableBlobFiles(dice.nextInt(3) == 0).setMinBlobSize(20);
        if (dice.nextBoolean()) {
            options.setWalDir(directory + "/logs");
        }
        HexFormat hex = HexFormat.of();
        try (RocksDB db = RocksDB.open(options, directory + "/db");
             BackupEngine engine = BackupEngine.open(Env.getDefault(), settings)) {
            for (int number = 1; number <= 1 + dice.nextInt(4); number++) {
                for (int step = 0; step < 5 + dice.nextInt(200); step++) {
                    byte[] key = ("key" + dice.nextInt(60)).getBytes();
                    if (dice.nextInt(5) == 0) {
                        db.delete(key);
                    } else {
                        byte[] value = new byte[dice.nextInt(60)];
                        dice.nextBytes(value);
                        db.put(key, value);
                    }
                    if (dice.nextInt(60) == 0) {
                        db.flush(new FlushOptions());
                    }
                    if (dice.nextInt(150) == 0) {
                        db.compactRange();
                    }
                }
                engine.createNewBackup(db, dice.nextBoolean());
                try (RocksIterator rows = db.newIterator()) {
                    for (rows.seekToFirst(); rows.isValid(); rows.next()) {
                        System.out.println(number + "\t" + hex.formatHex(rows.key()) + "\t" + hex.formatHex(rows.value()));
                    }
                }
            }
        }
    }
}
