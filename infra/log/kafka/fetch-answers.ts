import { createRequire } from "node:module";
import type { KafkaMessage } from "kafkajs";
import { unsupported } from "./record-batches.ts";

/**
 * Passes record batches through kafkajs as bytes. kafkajs makes an object of each message, with its numbers as decimal
 * texts, which costs four times what decoding the same bytes here does. So the socket puts the record set of an answer to
 * Fetch v11 into the value of one message of the oldest format, 0; kafkajs decodes that message and gives it to the request
 * that the answer belongs to. An answer that cannot be packed is handed on as it came, and kafkajs decodes it.
 */

/** What this was tried with: its decoder takes offset -1 and reads no checksum. */
const KAFKAJS = "2.2.4";
const FETCH = 1;
const FETCH_VERSION = 11;
/** Offset of a message that holds a record set. No broker gives it. */
const PACKED_OFFSET = -1;

/** Gives what kafkajs is handed in place of the answer to a request; both are whole, behind their length. */
export type OnAnswer = (request: Buffer, answer: Buffer) => Buffer;

/**
 * @param warn is called at most once, with why kafkajs decodes a record set
 * @param version of kafkajs; with one that was not tried every answer is handed on as it came
 */
export function packFetches(warn: (why: string) => void, version = installed()): OnAnswer {
  let isWarned = false;
  const handOn = (answer: Buffer, why: string | null): Buffer => {
    if (why !== null && !isWarned) warn(why);
    isWarned ||= why !== null;
    return answer;
  };
  return (request, answer) => {
    // Tokens of old forms of SASL may be shorter than a request.
    if (request.length < 12 || request.readInt16BE(4) !== FETCH) return answer;
    if (version !== KAFKAJS) return handOn(answer, `kafkajs ${version} instead of ${KAFKAJS}`);
    const asked = request.readInt16BE(6);
    if (asked !== FETCH_VERSION) return handOn(answer, `version ${asked} of Fetch`);
    const found = recordSetAt(answer, request.readInt32BE(8));
    return typeof found === "number" ? pack(answer, found) : handOn(answer, found);
  };
}

const installed = () => (createRequire(import.meta.url)("kafkajs/package.json") as { version: string }).version;

/** The record set of an answer that was packed; null for messages that kafkajs decoded. */
export const packedBatches = ([message]: readonly KafkaMessage[]): Buffer | null =>
  message?.offset === String(PACKED_OFFSET) ? message.value : null;

/** Where the only record set stands, behind its size. Else why it is not packed; null: there is none, or an error. */
function recordSetAt(answer: Buffer, correlationId: number): number | string | null {
  try {
    if (answer.readInt32BE(4) !== correlationId) return "an answer to another request";
    if (answer.readInt16BE(12) !== 0) return null;
    if (answer.readInt32BE(18) !== 1) return "an answer of several topics";
    let at = 24 + answer.readInt16BE(22); // name of the topic
    if (answer.readInt32BE(at) !== 1) return "an answer of several partitions";
    if (answer.readInt16BE(at + 8) !== 0) return null;
    at += 10 + 3 * 8; // three offsets
    at += 4 + 16 * Math.max(0, answer.readInt32BE(at)); // aborted transactions
    const size = answer.readInt32BE(at + 4); // behind the preferred replica
    if (size <= 0) return null;
    if (at + 8 + size !== answer.length) return "an answer of another shape";
    return unsupported(answer.subarray(at + 8)) ?? at + 8;
  } catch {
    return "an answer of another shape";
  }
}

function pack(answer: Buffer, at: number): Buffer {
  const recordSet = answer.subarray(at);
  // Offset, size, checksum, format, attributes, length of the key (-1: none), length of the value.
  const head = Buffer.alloc(26);
  head.writeBigInt64BE(BigInt(PACKED_OFFSET), 0);
  head.writeInt32BE(14 + recordSet.length, 8);
  head.writeInt32BE(-1, 18);
  head.writeInt32BE(recordSet.length, 22);
  const packed = Buffer.concat([answer.subarray(0, at), head, recordSet]);
  packed.writeInt32BE(packed.length - 4, 0);
  packed.writeInt32BE(head.length + recordSet.length, at - 4);
  return packed;
}
