// Replays a workload in classic-level and prints what it answers; see ../workload.py for the language.
const fs = require('fs')
const { ClassicLevel } = require('classic-level')

const [path, script] = process.argv.slice(2)

async function main () {
  const steps = fs.readFileSync(script, 'utf8').trim().split('\n').map(line => JSON.parse(line))
  const encoding = { keyEncoding: 'hex', valueEncoding: 'hex' }
  const options = steps[0].options
  let db = new ClassicLevel(path, { ...encoding, ...options })
  await db.open()
  for (const step of steps.slice(1)) {
    if (step.do === 'write') {
      const batch = step.of.map(([name, key, value]) => ({ type: name === 'put' ? 'put' : 'del', key, value }))
      await db.batch(batch, { sync: step.sync })
    } else if (step.do === 'compact') {
      await db.compactRange(step.low, step.high)
    } else if (step.do === 'reopen') {
      await db.close()
      db = new ClassicLevel(path, { ...encoding, ...options })
      await db.open()
    } else {
      throw new Error(step.do)
    }
  }
  const lines = []
  for await (const [key, value] of db.iterator()) lines.push(JSON.stringify(['default', key, value]))
  fs.writeSync(1, lines.concat(['open', '']).join('\n'))
  fs.readFileSync(0)
  await db.close()
}

main().catch(error => { console.error(error); process.exit(1) })
