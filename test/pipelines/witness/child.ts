import { writeSync } from "node:fs";
import { systemClock } from "../../../infra/clock.ts";
import { type ChangeStep, WitnessState } from "../../../pipelines/witness/state.ts";
import { Witness } from "../../../pipelines/witness/witness.ts";
import { noteSigner } from "../../helpers/witnessed.ts";

/**
 * A witness that reads requests from stdin, one a line in base64, and writes each answer as a line of JSON:
 * `child.ts DIR [STEP N]` kills its own process group when it comes to that step for the Nth time.
 */
const [dir, step, n] = process.argv.slice(2) as [string, ChangeStep?, string?];
let seen = 0;
const state = WitnessState.open(dir, "witness.example/killed", (at) => {
  if (at !== step || ++seen < Number(n)) return;
  process.kill(0, "SIGKILL");
  // The signal is on its way: nothing more happens here.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});
const witness = new Witness(state, [noteSigner("log.example/one", 11)], systemClock);
writeSync(1, `${JSON.stringify({ vkey: witness.vkey })}\n`);
let text = "";
process.stdin.on("data", (chunk) => {
  text += chunk;
  const lines = text.split("\n");
  text = lines.pop()!;
  for (const line of lines) {
    const { status, body } = witness.answerAddCheckpoint(Buffer.from(line, "base64"));
    writeSync(1, `${JSON.stringify({ status, body: body.toString() })}\n`);
  }
});
