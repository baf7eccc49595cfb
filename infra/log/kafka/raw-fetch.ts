import type { FetchBroker } from "kafkajs/src/cluster/index.js";
import Decoder from "kafkajs/src/protocol/decoder.js";
import apiKeys from "kafkajs/src/protocol/requests/apiKeys.js";
import fetchApi from "kafkajs/src/protocol/requests/fetch/index.js";

/** Newest form of the request that kafkajs speaks, and the only one whose answer is read here. Brokers since Kafka 2.3. */
const VERSION = 11;

export interface RawPartition {
  partition: number;
  errorCode: number;
  /** Record batches as they lie at the broker; the last one may be cut off. */
  records: Buffer;
}

/** Fetch Response (Version: 11) of the Kafka protocol, with the records left as they are. */
function decode(payload: Buffer) {
  const decoder = new Decoder(payload);
  const clientSideThrottleTime = decoder.readInt32();
  const errorCode = decoder.readInt16();
  const sessionId = decoder.readInt32();
  const responses = decoder.readArray(() => ({
    topicName: decoder.readString(),
    partitions: decoder.readArray(() => rawPartition(decoder)),
  }));
  return { throttleTime: 0, clientSideThrottleTime, errorCode, sessionId, responses };
}

function rawPartition(decoder: Decoder): RawPartition {
  const partition = decoder.readInt32();
  const errorCode = decoder.readInt16();
  // High watermark, last stable offset, log start.
  decoder.forward(3 * 8);
  // Aborted transactions: producer and first offset.
  decoder.readArray(() => decoder.forward(2 * 8));
  // Preferred replica.
  decoder.forward(4);
  return { partition, errorCode, records: decoder.readBytes() ?? Buffer.alloc(0) };
}

/** kafkajs' own request, and its own judgement of error codes; only the records are not taken apart by it. */
const RAW_FETCH = {
  versions: [String(VERSION)],
  protocol({ version }: { version: number }) {
    if (version !== VERSION) throw new Error(`the broker fetches in form ${version}, at least ${VERSION} is needed`);
    return (options: object) => {
      const { response, ...request } = fetchApi.protocol({ version })(options);
      return { ...request, response: { decode, parse: response.parse } };
    };
  },
};

/**
 * Batches of one partition from an offset on, as bytes.
 * @throws what kafkajs' fetch throws: its errors of the protocol (`type`) and of connections
 */
export async function fetchRaw(
  broker: FetchBroker,
  place: { topic: string; partition: number },
  { from, waitMs, maxBytes }: { from: number; waitMs: number; maxBytes: number },
): Promise<Buffer> {
  const request = broker.lookupRequest(apiKeys.Fetch, RAW_FETCH);
  const partitions = [{ partition: place.partition, fetchOffset: String(from), maxBytes }];
  const topics = [{ topic: place.topic, partitions }];
  try {
    const answer = await broker.connectionPool.send(
      request({ isolationLevel: 0, maxWaitTime: waitMs, minBytes: 1, maxBytes, topics }),
    );
    const { responses } = answer as ReturnType<typeof decode>;
    const found = responses.flatMap((one) => one.partitions).find((one) => one.partition === place.partition);
    return found?.records ?? Buffer.alloc(0);
  } catch (error) {
    // As its own calls do: a connection that was closed under a request is opened anew for the next one.
    if ((error as Error).name === "KafkaJSConnectionClosedError") await broker.disconnect();
    throw error;
  }
}
