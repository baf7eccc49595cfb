import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { promisify } from "node:util";
import { gunzip, gzip } from "node:zlib";
import kafkajs, { type Assigner, type Cluster, type ISocketFactory } from "kafkajs";
import { compress } from "zstd-napi";
import type { Logger } from "../../telemetry.ts";
import { unpackFrames } from "../../zstd.ts";
import type { KafkaAddress } from "./address.ts";
import { MAX_UNPACKED_BYTES } from "./record-batches.ts";

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;

/** Adds zstd, with which record batches are compressed; kafkajs does not include it. */
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder: { buffer: Buffer }) => compress(encoder.buffer, { compressionLevel: 3 }),
  decompress: async (buffer: Buffer) => unpackFrames(buffer, MAX_UNPACKED_BYTES),
});
/** Replaces the gzip of kafkajs, which decompresses to any size. */
CompressionCodecs[CompressionTypes.GZIP] = () => ({
  compress: (encoder: { buffer: Buffer }) => promisify(gzip)(encoder.buffer),
  decompress: (buffer: Buffer) => promisify(gunzip)(buffer, { maxOutputLength: MAX_UNPACKED_BYTES }),
});

/** Longest time to connect to a broker, ms. */
const CONNECT_MS = 3_000;
/** Longest time for one request, ms. */
const REQUEST_MS = 10_000;
/**
 * Retries of one request by kafkajs, and the pauses before them, ms. If all fail, the caller gets the error and decides
 * whether to repeat the request.
 */
const RETRY = { initialRetryTime: 100, maxRetryTime: 2_000, retries: 6 };
/** Largest age of the metadata about the partitions' leaders, ms. */
const MAX_METADATA_AGE_MS = 60_000;

/**
 * Shuffles the brokers for one client. A client stays with the first broker that accepts its connection, and a proxy
 * in front of a dead broker may accept every connection and close it. With a random order, a new client begins with
 * another broker.
 */
const shuffle = (brokers: readonly string[]): string[] =>
  brokers
    .map((broker) => ({ broker, order: Math.random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ broker }) => broker);

/** Creates a kafkajs client, for producers, admin requests and consumer groups. */
export const createKafka = (address: KafkaAddress, logger: Logger) =>
  new Kafka({
    clientId: "touchstone",
    brokers: shuffle(address.brokers),
    connectionTimeout: CONNECT_MS,
    requestTimeout: REQUEST_MS,
    ...(address.ssl ? { ssl: true } : {}),
    ...(address.sasl ? { sasl: address.sasl as never } : {}),
    socketFactory: createSockets({ answerMs: REQUEST_MS }),
    retry: RETRY,
    logLevel: logLevel.WARN,
    // Messages of kafkajs are logged at level debug, since the caller gets the important ones as errors.
    logCreator:
      () =>
      ({ namespace, log }) =>
        logger.debug({ kafka: namespace, ...log }, log.message),
  });

/**
 * Creates connections to the brokers, for requests that name a partition and an offset. kafkajs gives access to its
 * connections only to a consumer's function that assigns partitions (its type PartitionAssigner), so a consumer is
 * created for that. The consumer is never run, since the positions to read from are stored in the commits of the
 * segments and not in Kafka.
 */
export function createCluster(address: KafkaAddress, logger: Logger): Cluster {
  let cluster: Cluster | undefined;
  const idleAssigner: Assigner = {
    name: "none",
    version: 0,
    assign: async () => [],
    protocol: () => ({ name: "none", metadata: Buffer.alloc(0) }),
  };
  createKafka(address, logger).consumer({
    groupId: `${address.prefix}.none`,
    metadataMaxAge: MAX_METADATA_AGE_MS,
    allowAutoTopicCreation: false,
    maxInFlightRequests: 8,
    partitionAssigners: [
      (assignerParts) => {
        cluster = assignerParts.cluster;
        return idleAssigner;
      },
    ],
  });
  if (!cluster) throw new Error("kafkajs made no connections for its assigner of partitions");
  return cluster;
}

/** Returns the name of a broker's error; "" for any other error. */
export const errorType = (error: unknown): string => (error as { type?: string } | null)?.type ?? "";

/** Size of the length field before each request and each answer of Kafka, bytes. */
const LENGTH_BYTES = 4;
/** Key of the request JoinGroup, which a broker answers only after all members of the group have joined. */
const JOIN_GROUP_KEY = 11;
/** Longest time for the answer to JoinGroup, ms. */
const JOIN_ANSWER_MS = 120_000;
/** Longest time for which a new connection may be open before its first request, ms. */
const FIRST_REQUEST_MS = 30_000;
const KEEP_ALIVE_MS = 60_000;

export interface SocketSettings {
  /** Time after which a request without an answer counts as lost, ms. */
  answerMs: number;
  /** Longest time for which a connection may be open before its first request, ms (default 30,000). */
  firstWordMs?: number;
}

/**
 * Creates the function that opens sockets for kafkajs 2.2.4 (its public option `socketFactory`). The sockets work
 * around four bugs in how kafkajs handles interrupted connections. Each bug made requests hang or fail for ever:
 *
 * 1. When a connection ends in the middle of an answer, kafkajs puts the received part before the answers of the next
 *    connection, and can decode none of them. So only complete answers are passed to it.
 * 2. kafkajs takes events of an old socket, such as its end, for events of the new one. So a socket that either side
 *    has closed emits no further events.
 * 3. Two requests that find a connection closed each open a socket, and kafkajs never closes the first of the two.
 *    When the broker later closes it, bug 2 follows. So a socket without any request is closed, and emits no event.
 * 4. A request that times out leaves its connection open, although a router on the way may have dropped the
 *    connection, which then never answers again. So a socket whose answer is overdue ends with an error, and all its
 *    requests fail.
 */
export function createSockets(settings: SocketSettings): ISocketFactory {
  return ({ host, port, ssl, onConnect }) => {
    const socket = ssl
      ? connectTls({ host, port, ...(isIP(host) ? {} : { servername: host }), ...ssl }, onConnect)
      : connect({ host, port }, onConnect);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    fixSocket(socket, settings);
    return socket;
  };
}

/** Changes one socket so that it works around the bugs of kafkajs that `createSockets` lists. */
function fixSocket(socket: Socket, { answerMs, firstWordMs = FIRST_REQUEST_MS }: SocketSettings): void {
  const { emit, write } = socket;
  let isClosed = false;
  /** Time limit of each request that has no answer yet, ms, in the order of the requests. */
  const answerLimitsMs: number[] = [];
  let timer: NodeJS.Timeout | null = null;
  /** Received bytes of answers that are not complete. */
  let partialAnswer: Buffer[] = [];
  let partialBytes = 0;
  /** Length of the first of these answers, bytes. */
  let expectedBytes = LENGTH_BYTES;

  const setTimer = (ms: number | undefined, work: () => void) => {
    if (timer) clearTimeout(timer);
    timer = ms === undefined ? null : setTimeout(work, ms).unref();
  };
  const closeSilently = () => {
    isClosed = true;
    setTimer(undefined, closeSilently);
    partialAnswer = [];
    socket.destroy();
  };
  const awaitAnswer = () => {
    const [ms] = answerLimitsMs;
    setTimer(ms, () => socket.destroy(new Error(`no answer of the broker for ${ms} ms`)));
  };

  socket.once("connect", () => {
    if (answerLimitsMs.length === 0) setTimer(firstWordMs, closeSilently);
  });
  socket.once("close", () => setTimer(undefined, closeSilently));
  // An error after the close has no effect, but without a listener it would end the process.
  socket.on("error", () => undefined);

  socket.write = ((bytes: Buffer | string, ...more: unknown[]) => {
    const request = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes, "binary");
    // A request begins with its length and its key. Tokens of the old SASL protocol have no key; their time limit is the
    // usual one.
    const key = request.length >= LENGTH_BYTES + 2 ? request.readInt16BE(LENGTH_BYTES) : 0;
    answerLimitsMs.push(key === JOIN_GROUP_KEY ? JOIN_ANSWER_MS : answerMs);
    if (answerLimitsMs.length === 1) awaitAnswer();
    return (write as (...all: unknown[]) => boolean).call(socket, bytes, ...more);
  }) as typeof socket.write;

  socket.end = (() => {
    closeSilently();
    return socket;
  }) as typeof socket.end;

  socket.emit = (event: string | symbol, ...args: unknown[]): boolean => {
    const emitToListeners = (name: string | symbol, ...all: unknown[]): boolean =>
      Reflect.apply(emit, socket, [name, ...all]);
    if (event === "data") {
      if (isClosed) return false;
      const chunk = args[0] as Buffer;
      partialAnswer.push(chunk);
      partialBytes += chunk.length;
      if (partialBytes < expectedBytes) return true;
      let bytes = partialAnswer.length === 1 ? chunk : Buffer.concat(partialAnswer, partialBytes);
      for (;;) {
        expectedBytes = LENGTH_BYTES + (bytes.length < LENGTH_BYTES ? 0 : Math.max(0, bytes.readInt32BE(0)));
        if (bytes.length < expectedBytes) break;
        const answer = bytes.subarray(0, expectedBytes);
        bytes = bytes.subarray(expectedBytes);
        answerLimitsMs.shift();
        awaitAnswer();
        emitToListeners("data", answer);
        // The listener may have closed the socket.
        if (isClosed) return true;
      }
      partialAnswer = [bytes];
      partialBytes = bytes.length;
      return true;
    }
    if (event === "end" || event === "error" || event === "timeout") {
      if (isClosed) return false;
      // This is the last event that the socket emits; then the socket is destroyed.
      const hadListeners = emitToListeners(event, ...args);
      closeSilently();
      return hadListeners;
    }
    return emitToListeners(event, ...args);
  };
}
