// Writes a database of Pebble's whose files are in several directories, and prints what it holds, a row a line.
//
//	elsewhere DIRECTORY CASE SEED
//
// CASE is logs (another directory for them), failover (two, of which the first is slow) or shared (tables in remote
// storage). The process ends without closing the database.
package main

import (
	"encoding/hex"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/remote"
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
	case "shared":
		place := filepath.Join(directory, "remote")
		check(os.MkdirAll(place, 0o755))
		locator := remote.Locator("loc")
		storage := remote.NewLocalFS(place, vfs.Default)
		options.Experimental.RemoteStorage = remote.MakeSimpleFactory(map[remote.Locator]remote.Storage{locator: storage})
		options.Experimental.CreateOnShared = remote.CreateOnSharedAll
		options.Experimental.CreateOnSharedLocator = locator
	}
	db, err := pebble.Open(home, options)
	check(err)
	if kind == "shared" {
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
