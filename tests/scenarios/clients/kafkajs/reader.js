// Reads with kafkajs. What it is given and what it prints is that of reader.py beside this folder.
'use strict'

const fs = require('fs')
const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const EARLIEST = -2

async function main(spec) {
  const { security } = spec
  const kafka = new Kafka({
    clientId: 'reader',
    brokers: spec.bootstrap.split(','),
    logLevel: logLevel.NOTHING,
    ssl: security.ca ? { ca: [fs.readFileSync(security.ca, 'utf-8')] } : undefined,
    sasl: security.mechanism
      ? { mechanism: security.mechanism.toLowerCase(), username: security.username, password: security.password }
      : undefined,
    retry: { initialRetryTime: 100, retries: 30 },
  })
  // kafkajs reads as a member of a group alone; with starts it is the only one, and seeks.
  const consumer = kafka.consumer({
    groupId: spec.group || `alone-${process.pid}-${Date.now()}`,
    maxBytesPerPartition: 65536,
    maxWaitTimeInMs: 500,
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    process.stderr.write(`crash, restarts: ${payload.restart}: ${payload.error.stack}\n`)
    if (!payload.restart) process.exit(1)
  })
  consumer.on(consumer.events.COMMIT_OFFSETS, ({ payload }) => {
    const committed = payload.topics.flatMap(({ partitions }) => partitions.map((one) => [one.partition, one.offset].map(Number)))
    print(JSON.stringify({ committed }) + '\n')
  })
  let left = spec.starts ? spec.count : Infinity
  await consumer.connect()
  await consumer.subscribe({ topic: spec.topic, fromBeginning: true })
  await consumer.run({
    autoCommitInterval: spec.group ? 500 : 5,
    partitionsConsumedConcurrently: 1,
    eachMessage: async ({ partition, message }) => {
      if (left <= 0) return
      const row = [partition, Number(message.offset), Number(message.timestamp), text(message.key), text(message.value)]
      left -= 1
      await print(JSON.stringify(row) + '\n')
      if (left === 0) process.exit(0)
    },
  })
  for (const [partition, at] of Object.entries(spec.starts || {})) {
    if (at !== EARLIEST) consumer.seek({ topic: spec.topic, partition: Number(partition), offset: String(at) })
  }
}

function text(data) {
  return data === null ? null : data.toString('base64')
}

let printed = Promise.resolve()

// Who reads may take its time, as work with a record does: process.stdout would hold up everything else meanwhile.
function print(line) {
  printed = printed.then(() => new Promise((resolve) => fs.writeFile(1, line, resolve)))
  return printed
}

readline.createInterface({ input: process.stdin }).once('line', (line) => {
  main(JSON.parse(line)).catch((error) => {
    process.stderr.write(String(error) + '\n')
    process.exit(1)
  })
})
