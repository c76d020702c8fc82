import java.nio.charset.StandardCharsets;
import java.util.*;
import org.rocksdb.*;

/**
 * Writes a transactional RocksDB of a drawn workload and is killed, or says what such a database holds.
 *
 * <p>PreparedTransactions write DIRECTORY POLICY SEED, or answer DIRECTORY POLICY.
 */
public class PreparedTransactions {
  static byte[] b(String s) { return s.getBytes(StandardCharsets.UTF_8); }

  static String hex(byte[] data) {
    StringBuilder out = new StringBuilder();
    for (byte one : data) out.append(String.format("%02x", one));
    return out.toString();
  }

  static final List<ColumnFamilyHandle> FAMILIES = new ArrayList<>();

  static TransactionDB open(String path, String policy, long seed) throws Exception {
    TransactionDBOptions transactions =
        new TransactionDBOptions().setWritePolicy(TxnDBWritePolicy.valueOf(policy));
    DBOptions options = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true)
        .setTwoWriteQueues(seed % 3 == 0).setAvoidFlushDuringRecovery(seed % 2 == 0);
    List<ColumnFamilyDescriptor> families = new ArrayList<>();
    for (String name : new String[] {"default", "zweite"}) {
      ColumnFamilyOptions one = new ColumnFamilyOptions().setMergeOperator(new StringAppendOperator(""))
          .setDisableAutoCompactions(true);
      families.add(new ColumnFamilyDescriptor(b(name), one));
    }
    FAMILIES.clear();
    return TransactionDB.open(options, transactions, path, families, FAMILIES);
  }

  static void write(String path, String policy, long seed) throws Exception {
    Random random = new Random(seed);
    TransactionDB db = open(path, policy, seed);
    WriteOptions write = new WriteOptions();
    TransactionOptions quick = new TransactionOptions().setLockTimeout(1);
    Map<Integer, Transaction> prepared = new TreeMap<>();
    int steps = 20 + random.nextInt(60), keys = 5 + random.nextInt(25);
    for (int i = 0; i < steps; i++) {
      int kind = random.nextInt(20);
      if (kind < 11) {
        Transaction one = db.beginTransaction(write, quick);
        one.setName("x" + i);
        // Of what is on one key for the third time, RocksDB miscounts the numbers when it is opened again.
        Map<String, Integer> often = new HashMap<>();
        for (int j = random.nextInt(5); j >= 0; j--) {
          ColumnFamilyHandle family = FAMILIES.get(random.nextInt(2));
          String name = "k" + random.nextInt(keys);
          byte[] key = b(name), value = b(i + "." + j + ";");
          int what = random.nextInt(8), times = often.merge(name + family.getID(), 1, Integer::sum);
          if (times > 2) continue;
          try {
            if (what == 0) one.delete(family, key);
            // RocksDB's iterators merge into values that are prepared and not committed, too.
            else if (what == 1 && policy.equals("WRITE_COMMITTED")) one.merge(family, key, value);
            else one.put(family, key, value);
            if (times == 1 && random.nextInt(10) == 0) {
              often.merge(name + family.getID(), 1, Integer::sum);
              one.put(family, key, b(i + "again;"));
            }
          } catch (RocksDBException locked) {
          }
        }
        if (random.nextInt(4) == 0) one.commit();
        else { one.prepare(); prepared.put(i, one); }
      } else if (kind < 15 && !prepared.isEmpty()) {
        Integer[] names = prepared.keySet().toArray(new Integer[0]);
        Transaction one = prepared.remove(names[random.nextInt(names.length)]);
        if (random.nextInt(4) == 0) one.rollback(); else one.commit();
      } else if (kind < 17) {
        try (WriteBatch batch = new WriteBatch()) {
          for (int j = random.nextInt(4); j >= 0; j--) {
            byte[] key = b("k" + random.nextInt(keys));
            if (random.nextInt(4) == 0) batch.delete(FAMILIES.get(random.nextInt(2)), key);
            else batch.put(FAMILIES.get(random.nextInt(2)), key, b(i + "b" + j + ";"));
          }
          db.write(write, batch);
        } catch (RocksDBException locked) {
        }
      } else if (kind == 17) {
        db.flush(new FlushOptions().setWaitForFlush(true), FAMILIES.get(random.nextInt(2)));
      } else if (kind == 18) {
        try {
          db.put(FAMILIES.get(0), write, b("k" + random.nextInt(keys)), b(i + "p;"));
        } catch (RocksDBException locked) {
        }
      } else if (random.nextInt(2) == 0) {
        // Of what is written before its commit, RocksDB's compactions may leave a key twice with the number 0.
        if (policy.equals("WRITE_COMMITTED")) db.compactRange(FAMILIES.get(random.nextInt(2)));
      } else {
        for (Transaction one : prepared.values()) one.close();
        prepared.clear();
        for (ColumnFamilyHandle family : FAMILIES) family.close();
        db.close();
        db = open(path, policy, seed);
        for (Transaction one : db.getAllPreparedTransactions())
          prepared.put(Integer.valueOf(one.getName().substring(1)), one);
      }
    }
    Runtime.getRuntime().halt(0);
  }

  static void answer(String path, String policy) throws Exception {
    TransactionDB db = open(path, policy, 1);
    long waiting = 0;
    for (Transaction one : db.getAllPreparedTransactions())
      waiting += one.getNumPuts() + one.getNumDeletes() + one.getNumMerges();
    System.out.println("prepared\t" + waiting + "\t");
    for (int i = 0; i < 2; i++)
      try (RocksIterator it = db.newIterator(FAMILIES.get(i))) {
        for (it.seekToFirst(); it.isValid(); it.next())
          System.out.println(i + "\t" + hex(it.key()) + "\t" + hex(it.value()));
      }
    Runtime.getRuntime().halt(0);
  }

  public static void main(String[] args) throws Exception {
    RocksDB.loadLibrary();
    if (args[0].equals("write")) write(args[1], args[2], Long.parseLong(args[3]));
    else answer(args[1], args[2]);
  }
}
