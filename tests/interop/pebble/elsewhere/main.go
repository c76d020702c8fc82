// Writes a database of Pebble's whose files are in several directories, and prints what it holds, a row a line.
//
//	elsewhere DIRECTORY CASE SEED
//
// CASE is logs (another directory for them), failover (two, of which the first is slow), shared (tables in remote
// storage), external (tables there that others have made) or excise (ranges are cut out, in every format that can).
// The process ends without closing the database.
package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/objstorage/remote"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// slow is a file system whose logs in one directory take their time now and then.
type slow struct {
	vfs.FS
	directory string
}

type slowFile struct{ vfs.File }

func (f slowFile) Sync() error {
	time.Sleep(time.Millisecond * time.Duration(rand.Intn(60)))
	return f.File.Sync()
}
func (f slowFile) SyncData() error {
	time.Sleep(time.Millisecond * time.Duration(rand.Intn(60)))
	return f.File.SyncData()
}
func (f slowFile) Write(data []byte) (int, error) {
	time.Sleep(time.Millisecond * time.Duration(rand.Intn(20)))
	return f.File.Write(data)
}

func (s slow) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := s.FS.Create(name, category)
	if err == nil && strings.HasSuffix(name, ".log") && filepath.Dir(name) == s.directory {
		return slowFile{file}, nil
	}
	return file, err
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// ingest has the database take in a table of some keys, a part of which it uses, as an object of remote storage.
func ingest(db *pebble.DB, storage remote.Storage, locator remote.Locator, dice *rand.Rand, step int) {
	name := fmt.Sprintf("external%d", step)
	object, err := storage.CreateObject(name)
	check(err)
	writer := sstable.NewWriter(objstorageprovider.NewRemoteWritable(object), sstable.WriterOptions{TableFormat: db.TableFormat()})
	low := dice.Intn(40)
	high := low + 2 + dice.Intn(18)
	for number := low; number < high; number++ {
		check(writer.Set([]byte(fmt.Sprintf("key%03d", number)), []byte(fmt.Sprintf("%s.%d", name, number))))
	}
	check(writer.Close())
	size, err := storage.Size(name)
	check(err)
	first := low + dice.Intn(high-low-1)
	_, err = db.IngestExternalFiles(context.Background(), []pebble.ExternalFile{{
		Locator:     locator,
		ObjName:     name,
		Size:        uint64(size),
		StartKey:    []byte(fmt.Sprintf("key%03d", first)),
		EndKey:      []byte(fmt.Sprintf("key%03d", first+1+dice.Intn(high-first-1))),
		HasPointKey: true,
	}})
	check(err)
}

func main() {
	directory, kind := os.Args[1], os.Args[2]
	seed, err := strconv.ParseInt(os.Args[3], 10, 64)
	check(err)
	dice := rand.New(rand.NewSource(seed))
	home := filepath.Join(directory, "db")
	options := &pebble.Options{
		FormatMajorVersion:          pebble.FormatMajorVersion(17),
		DisableAutomaticCompactions: true,
	}
	locator := remote.Locator("remote")
	storage := remote.NewLocalFS(filepath.Join(directory, "remote"), vfs.Default)
	switch kind {
	case "logs":
		options.WALDir = filepath.Join(directory, "db-logs")
	case "failover":
		second := filepath.Join(directory, "db-second")
		check(os.MkdirAll(second, 0o755))
		options.FS = slow{vfs.Default, home}
		options.WALFailover = &pebble.WALFailoverOptions{
			Secondary: wal.Dir{FS: vfs.Default, Dirname: second},
			FailoverOptions: wal.FailoverOptions{
				PrimaryDirProbeInterval:            5 * time.Millisecond,
				HealthyProbeLatencyThreshold:       8 * time.Millisecond,
				HealthyInterval:                    10 * time.Millisecond,
				UnhealthySamplingInterval:          time.Millisecond,
				UnhealthyOperationLatencyThreshold: func() (time.Duration, bool) { return 4 * time.Millisecond, true },
				ElevatedWriteStallThresholdLag:     10 * time.Millisecond,
			},
		}
	case "shared", "external":
		check(os.MkdirAll(filepath.Join(directory, "remote"), 0o755))
		options.Experimental.RemoteStorage = remote.MakeSimpleFactory(map[remote.Locator]remote.Storage{locator: storage})
	}
	if kind == "excise" {
		first := int(pebble.FormatFlushableIngestExcises)
		options.FormatMajorVersion = pebble.FormatMajorVersion(first + dice.Intn(int(pebble.FormatNewest)-first+1))
		options.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
			return pebble.ValueSeparationPolicy{
				Enabled:               true,
				MinimumSize:           20,
				MaxBlobReferenceDepth: 4,
				RewriteMinimumAge:     time.Minute,
				TargetGarbageRatio:    0.5,
			}
		}
	}
	if kind == "shared" {
		options.Experimental.CreateOnShared = remote.CreateOnSharedAll
		options.Experimental.CreateOnSharedLocator = locator
	}
	db, err := pebble.Open(home, options)
	check(err)
	if options.Experimental.RemoteStorage != nil {
		check(db.SetCreatorID(uint64(1 + dice.Intn(9))))
	}
	for step := 0; step < 20+dice.Intn(200); step++ {
		key := []byte(fmt.Sprintf("key%03d", dice.Intn(60)))
		switch draw := dice.Intn(10); {
		case draw < 2:
			check(db.Delete(key, pebble.Sync))
		case draw < 3:
			check(db.Merge(key, []byte("+m"), pebble.Sync))
		default:
			value := make([]byte, dice.Intn(60))
			dice.Read(value)
			check(db.Set(key, value, pebble.Sync))
		}
		if kind == "external" && dice.Intn(15) == 0 {
			ingest(db, storage, locator, dice, step)
		}
		if kind == "excise" && dice.Intn(15) == 0 {
			low := dice.Intn(60)
			span := pebble.KeyRange{
				Start: []byte(fmt.Sprintf("key%03d", low)),
				End:   []byte(fmt.Sprintf("key%03d", low+1+dice.Intn(12))),
			}
			check(db.Excise(context.Background(), span))
		}
		if dice.Intn(50) == 0 {
			check(db.Flush())
		}
	}
	rows, err := db.NewIter(nil)
	check(err)
	for valid := rows.First(); valid; valid = rows.Next() {
		value, err := rows.ValueAndErr()
		check(err)
		fmt.Println(hex.EncodeToString(rows.Key()) + "\t" + hex.EncodeToString(value))
	}
	os.Exit(0)
}
