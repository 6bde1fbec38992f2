// Clients of Node for `benchmarks.node`: node node_clients.mjs FOLDER CLIENT TASKS KEY VALUE
//
// For each line on standard input, a number of seconds, TASKS tasks read KEY for that long, one GET at a time;
// the answer is a line with the GETs of a second. The server's URL is in the environment variable BENCH_URL.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, name, tasks, key, value] = process.argv.slice(2);
const load = createRequire(`${folder}/`);

async function open() {
  if (name === "node-redis") return load("redis").createClient({ url: process.env.BENCH_URL }).connect();
  const { Redis } = load("ioredis");
  return new Redis(process.env.BENCH_URL, { enableAutoPipelining: name === "ioredis, auto-pipelining" });
}

async function measure(client, seconds) {
  const began = performance.now();
  const until = began + seconds * 1000;
  let count = 0;
  const task = async () => {
    for (let reads = 0; ; reads++) {
      // The clock is read for every tenth GET alone: it must not cost what is measured.
      if (reads % 10 === 0 && performance.now() >= until) return;
      await client.get(key);
      count++;
    }
  };
  await Promise.all(Array.from({ length: Number(tasks) }, task));
  return count / ((performance.now() - began) / 1000);
}

const client = await open();
if ((await client.get(key)) !== value) throw new Error("GET answered something else than what is stored");
for await (const line of createInterface({ input: process.stdin })) console.log(await measure(client, Number(line)));
process.exit(0);
