// Writes a database of go-ethereum, and what it reads of it: leveldb|pebble TARGET
package main

import (
	"encoding/json"
	"math/big"
	"os"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/rawdb"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethdb"
	"github.com/ethereum/go-ethereum/ethdb/leveldb"
	"github.com/ethereum/go-ethereum/ethdb/pebble"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/trie"
	"github.com/holiman/uint256"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	var store ethdb.KeyValueStore
	var err error
	if os.Args[1] == "pebble" {
		store, err = pebble.New(os.Args[2]+"/chaindata", 16, 16, "", false)
	} else {
		store, err = leveldb.New(os.Args[2]+"/chaindata", 16, 16, "", false)
	}
	check(err)
	db := rawdb.NewDatabase(store)
	key, err := crypto.HexToECDSA("b71c71a67e1177ad4e901695e1b4b9ee17ae16c6668d313eac2f96dbcdaa3f29")
	check(err)
	to := common.HexToAddress("0x00000000000000000000000000000000000000aa")
	config := params.MergedTestChainConfig
	signer := types.LatestSigner(config)
	truth := []map[string]any{}
	parent := common.Hash{}
	for number := uint64(0); number < 3; number++ {
		body := &types.Body{}
		receipts := types.Receipts{}
		if number > 0 {
			legacy, err := types.SignTx(types.NewTx(&types.LegacyTx{Nonce: 2 * number, To: &to, Value: big.NewInt(1e18), Gas: 21000, GasPrice: big.NewInt(7e9)}), signer, key)
			check(err)
			dynamic, err := types.SignTx(types.NewTx(&types.DynamicFeeTx{ChainID: config.ChainID, Nonce: 2*number + 1, Value: big.NewInt(0), Gas: 90000, GasTipCap: big.NewInt(1), GasFeeCap: big.NewInt(9e9), Data: []byte{0x60, 0x00}}), signer, key)
			check(err)
			body.Transactions = types.Transactions{legacy, dynamic}
			body.Withdrawals = types.Withdrawals{{Index: 5, Validator: 6, Address: to, Amount: 7}}
			receipts = types.Receipts{
				{Type: types.LegacyTxType, Status: 1, CumulativeGasUsed: 21000, TxHash: legacy.Hash(), GasUsed: 21000, Logs: []*types.Log{}},
				{Type: types.DynamicFeeTxType, Status: 0, CumulativeGasUsed: 71000, TxHash: dynamic.Hash(), GasUsed: 50000, Logs: []*types.Log{{Address: to, Topics: []common.Hash{{1}, {2}}, Data: []byte{9, 9}}}},
			}
		}
		header := &types.Header{ParentHash: parent, Coinbase: to, Number: new(big.Int).SetUint64(number), Difficulty: big.NewInt(0), GasLimit: 30000000, GasUsed: 71000, Time: 1700000000 + 12*number, Extra: []byte("sawlog"), BaseFee: big.NewInt(7)}
		block := types.NewBlock(header, body, receipts, trie.NewStackTrie(nil))
		rawdb.WriteBlock(db, block)
		rawdb.WriteReceipts(db, block.Hash(), number, receipts)
		rawdb.WriteCanonicalHash(db, block.Hash(), number)
		rawdb.WriteTxLookupEntriesByBlock(db, block)
		shown, err := json.Marshal(block.Header())
		check(err)
		txs, err := json.Marshal(block.Transactions())
		check(err)
		truth = append(truth, map[string]any{"hash": block.Hash(), "header": json.RawMessage(shown), "transactions": json.RawMessage(txs), "receipts": receipts})
		parent = block.Hash()
	}
	rawdb.WriteHeadBlockHash(db, parent)
	rawdb.WriteHeadHeaderHash(db, parent)
	rawdb.WriteHeadFastBlockHash(db, parent)
	rawdb.WriteDatabaseVersion(db, 9)
	rawdb.WriteChainConfig(db, common.HexToHash(truth[0]["hash"].(common.Hash).Hex()), config)
	code := []byte{0x60, 0x01, 0x60, 0x02}
	rawdb.WriteCode(db, crypto.Keccak256Hash(code), code)
	account := types.SlimAccountRLP(types.StateAccount{Nonce: 3, Balance: uint256.NewInt(5), Root: types.EmptyRootHash, CodeHash: crypto.Keccak256(code)})
	rawdb.WriteAccountSnapshot(db, crypto.Keccak256Hash(to.Bytes()), account)
	rawdb.WriteStorageSnapshot(db, crypto.Keccak256Hash(to.Bytes()), common.Hash{1}, []byte{0x82, 1, 2})
	rawdb.WriteTxIndexTail(db, 0)
	check(db.Close())
	out, err := json.MarshalIndent(truth, "", " ")
	check(err)
	check(os.WriteFile(os.Args[2]+"/truth.json", out, 0o644))
}
