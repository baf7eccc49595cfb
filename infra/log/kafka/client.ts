import { connect, isIP, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import kafkajs, { type Assigner, type Cluster, type ISocketFactory } from "kafkajs";
import { compress, decompress } from "zstd-napi";
import type { Logger } from "../../telemetry.ts";
import type { KafkaAddress } from "./address.ts";

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;

/** zstd is what the topics are declared with; kafkajs ships without it. */
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder: { buffer: Buffer }) => compress(encoder.buffer, { compressionLevel: 3 }),
  decompress: async (buffer: Buffer) => decompress(buffer),
});

/** Waits and tries of one request, ms. What fails for longer is told to the caller, who tries by its own rule. */
const CONNECT_MS = 3_000;
const REQUEST_MS = 10_000;
const RETRY = { initialRetryTime: 100, maxRetryTime: 2_000, retries: 6 };
/** How old what we know of leaders may get. */
const METADATA_MS = 60_000;

/**
 * Shuffles the brokers for one client. A client keeps to the first broker that accepts its connection, and a proxy in front
 * of a dead broker may accept and close it every time. A client that is opened anew starts with another broker.
 */
const anyOrder = (brokers: readonly string[]): string[] =>
  brokers
    .map((broker) => ({ broker, order: Math.random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ broker }) => broker);

/** The client: producer, admin and consumer groups. */
export const createKafka = (address: KafkaAddress, logger: Logger) =>
  new Kafka({
    clientId: "touchstone",
    brokers: anyOrder(address.brokers),
    connectionTimeout: CONNECT_MS,
    requestTimeout: REQUEST_MS,
    ...(address.ssl ? { ssl: true } : {}),
    ...(address.sasl ? { sasl: address.sasl as never } : {}),
    socketFactory: createSockets({ answerMs: REQUEST_MS }),
    retry: RETRY,
    logLevel: logLevel.WARN,
    // As debug lines: what matters of them reaches the caller as an error.
    logCreator:
      () =>
      ({ namespace, log }) =>
        logger.debug({ kafka: namespace, ...log }, log.message),
  });

/**
 * Connections to the brokers, for requests that name a partition and an offset. kafkajs hands them to the function that
 * assigns the partitions of a consumer (its type PartitionAssigner). The consumer is never run: positions come from the commit chain.
 */
export function createCluster(address: KafkaAddress, logger: Logger): Cluster {
  let cluster: Cluster | undefined;
  const none: Assigner = {
    name: "none",
    version: 0,
    assign: async () => [],
    protocol: () => ({ name: "none", metadata: Buffer.alloc(0) }),
  };
  createKafka(address, logger).consumer({
    groupId: `${address.prefix}.none`,
    metadataMaxAge: METADATA_MS,
    allowAutoTopicCreation: false,
    maxInFlightRequests: 8,
    retry: RETRY,
    partitionAssigners: [
      (given) => {
        cluster = given.cluster;
        return none;
      },
    ],
  });
  if (!cluster) throw new Error("kafkajs made no connections for its assigner of partitions");
  return cluster;
}

/** Size of the length field that Kafka puts before each request and each answer. */
const LENGTH_BYTES = 4;
/** A request that waits for the members of a group: the broker answers when the slowest has joined. */
const JOIN_GROUP = 11;
const JOIN_MS = 120_000;
/** A new connection that is in use has its first request, or handshake, within this time. */
const FIRST_WORD_MS = 30_000;
const KEEP_ALIVE_MS = 60_000;

export interface SocketSettings {
  /** A broker that answers nothing for this long, ms, while a request waits, never will. */
  answerMs: number;
  /** How long a connection may be open before anything is asked on it, ms (default 30,000). */
  firstWordMs?: number;
}

/**
 * Sockets for kafkajs 2.2.4 as they have to be where cables are pulled (its public option `socketFactory`). Bugs of its
 * connections that are met here, each of which made requests hang or fail for good:
 *
 * 1. What had come of an answer when its connection ended is put before the answers of the next one, and none of those is
 *    ever understood. So only whole answers are handed on.
 * 2. What an old socket still says, its end above all, is taken for the new one's. So a socket that was closed, by either
 *    side, says nothing more.
 * 3. Two requests that find a connection closed open a socket each, and the first one is never closed; its end, when the
 *    broker is tired of it, is bug 2. So a socket on which nothing was asked is closed in silence.
 * 4. A request whose time is over leaves its connection open, though what forgot it on the way (a router) never answers
 *    again. So a socket without an answer while one is due is ended with an error, which fails what waits in it.
 */
export function createSockets(settings: SocketSettings): ISocketFactory {
  return ({ host, port, ssl, onConnect }) => {
    const socket = ssl
      ? connectTls({ host, port, ...(isIP(host) ? {} : { servername: host }), ...ssl }, onConnect)
      : connect({ host, port }, onConnect);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    mend(socket, settings);
    return socket;
  };
}

function mend(socket: Socket, { answerMs, firstWordMs = FIRST_WORD_MS }: SocketSettings): void {
  const { emit, write } = socket;
  let isOver = false;
  /** How long each request without an answer may take, ms, in their order. */
  const due: number[] = [];
  let timer: NodeJS.Timeout | null = null;
  /** What came of answers that are not whole, and how many bytes the first of them has. */
  let rest: Buffer[] = [];
  let restBytes = 0;
  let wholeBytes = LENGTH_BYTES;

  const watch = (ms: number | undefined, work: () => void) => {
    if (timer) clearTimeout(timer);
    timer = ms === undefined ? null : setTimeout(work, ms).unref();
  };
  const silence = () => {
    isOver = true;
    watch(undefined, silence);
    rest = [];
    socket.destroy();
  };
  const awaitAnswer = () => {
    const [ms] = due;
    watch(ms, () => socket.destroy(new Error(`no answer of the broker for ${ms} ms`)));
  };

  socket.once("connect", () => {
    if (due.length === 0) watch(firstWordMs, silence);
  });
  socket.once("close", () => watch(undefined, silence));
  // An error after the socket is closed concerns nobody, but without a listener it would end the process.
  socket.on("error", () => undefined);

  socket.write = ((bytes: Buffer | string, ...more: unknown[]) => {
    const request = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes, "binary");
    // Length, key of the call. Tokens of old forms of SASL have no key, and are answered as soon.
    const key = request.length >= LENGTH_BYTES + 2 ? request.readInt16BE(LENGTH_BYTES) : 0;
    due.push(key === JOIN_GROUP ? JOIN_MS : answerMs);
    if (due.length === 1) awaitAnswer();
    return (write as (...all: unknown[]) => boolean).call(socket, bytes, ...more);
  }) as typeof socket.write;

  socket.end = (() => {
    silence();
    return socket;
  }) as typeof socket.end;

  socket.emit = (event: string | symbol, ...args: unknown[]): boolean => {
    const tell = (name: string | symbol, ...all: unknown[]): boolean => Reflect.apply(emit, socket, [name, ...all]);
    if (event === "data") {
      if (isOver) return false;
      const piece = args[0] as Buffer;
      rest.push(piece);
      restBytes += piece.length;
      if (restBytes < wholeBytes) return true;
      let bytes = rest.length === 1 ? piece : Buffer.concat(rest, restBytes);
      for (;;) {
        wholeBytes = LENGTH_BYTES + (bytes.length < LENGTH_BYTES ? 0 : Math.max(0, bytes.readInt32BE(0)));
        if (bytes.length < wholeBytes) break;
        const answer = bytes.subarray(0, wholeBytes);
        bytes = bytes.subarray(wholeBytes);
        due.shift();
        awaitAnswer();
        tell("data", answer);
        // Whoever heard it may have closed the socket.
        if (isOver) return true;
      }
      rest = [bytes];
      restBytes = bytes.length;
      return true;
    }
    if (event === "end" || event === "error" || event === "timeout") {
      if (isOver) return false;
      // After this the socket emits nothing and is destroyed.
      const told = tell(event, ...args);
      silence();
      return told;
    }
    return tell(event, ...args);
  };
}
