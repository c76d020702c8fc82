import org.rocksdb.*;
import java.util.*;
import java.nio.charset.StandardCharsets;

/** Writes a transactional RocksDB, and what it holds in the end, one "key TAB value" a line, to standard output. */
public class Transactions {
  static byte[] b(String s) { return s.getBytes(StandardCharsets.UTF_8); }

  public static void main(String[] args) throws Exception {
    RocksDB.loadLibrary();
    TxnDBWritePolicy policy = TxnDBWritePolicy.valueOf(args[1]);
    try (Options options = new Options().setCreateIfMissing(true).setWriteBufferSize(256 << 20);
         TransactionDBOptions tdb = new TransactionDBOptions().setWritePolicy(policy);
         TransactionDB db = TransactionDB.open(options, tdb, args[0]);
         WriteOptions write = new WriteOptions()) {
      Random random = new Random(7);
      for (int i = 0; i < 120; i++) {
        try (Transaction one = db.beginTransaction(write); Transaction two = db.beginTransaction(write)) {
          one.setName("one" + i);
          two.setName("two" + i);
          Set<Integer> taken = new HashSet<>();
          for (int j = 0; j < 1 + random.nextInt(6); j++) {
            int key = random.nextInt(300);
            if (taken.add(key)) one.put(b("k" + key), b("one" + i + "." + j));
          }
          for (int j = 0; j < 1 + random.nextInt(6); j++) {
            int key = random.nextInt(300);
            if (!taken.contains(key)) { if (random.nextInt(8) == 0) two.delete(b("k" + key)); else two.put(b("k" + key), b("two" + i + "." + j)); }
          }
          one.prepare();
          two.prepare();
          if (i % 3 == 0) { two.commit(); one.commit(); } else { one.commit(); if (i % 11 == 5) two.rollback(); else two.commit(); }
        }
        if (i % 2 == 0) {
          try (WriteBatch batch = new WriteBatch()) {
            int last = 0;
            for (int j = 0; j < 5; j++) batch.put(b("k" + (last = random.nextInt(300))), b("batch" + i + "." + j));
            db.write(write, batch);
            db.put(write, b("k" + last), b("after" + i));
          }
          db.put(write, b("k" + random.nextInt(300)), b("behind" + i));
        }
        if (i % 5 == 0) db.put(write, b("k" + random.nextInt(300)), b("plain" + i));
      }
      try (RocksIterator it = db.newIterator()) {
        for (it.seekToFirst(); it.isValid(); it.next())
          System.out.println(new String(it.key(), StandardCharsets.UTF_8) + "\t" + new String(it.value(), StandardCharsets.UTF_8));
      }
    }
  }
}
