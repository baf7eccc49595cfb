/**
 * The inner part of kafkajs 2.2.4 (pinned exactly) that its public interface does not give: a fetch from any offset of
 * any partition without a consumer group, which is what a log is read by when positions come from the commit chain, and
 * what came of it as bytes.
 */
declare module "kafkajs/src/cluster/index.js" {
  /** What a request to a broker consists of; the answer is `parse(decode(its bytes))`. */
  interface ProtocolRequest {
    request: unknown;
    response: { decode(payload: Buffer): unknown; parse(decoded: unknown): Promise<unknown> };
    requestTimeout?: number;
  }
  interface RequestForms {
    versions: string[];
    protocol(form: { version: number }): (options: object) => ProtocolRequest;
  }
  export interface FetchBroker {
    /** The newest form that both sides have. */
    lookupRequest(apiKey: number, forms: RequestForms): (options: object) => ProtocolRequest;
    connectionPool: { send(request: ProtocolRequest): Promise<unknown> };
    disconnect(): Promise<void>;
  }
  interface Broker extends FetchBroker {
    joinGroup(request: {
      groupId: string;
      sessionTimeout: number;
      rebalanceTimeout: number;
      memberId: string;
      groupProtocols: { name: string; metadata: Buffer }[];
    }): Promise<{
      generationId: number;
      leaderId: string;
      memberId: string;
      members: { memberId: string; memberMetadata: Buffer }[];
    }>;
    syncGroup(request: {
      groupId: string;
      generationId: number;
      memberId: string;
      groupAssignment: { memberId: string; memberAssignment: Buffer }[];
    }): Promise<{ memberAssignment: Buffer }>;
    heartbeat(request: { groupId: string; groupGenerationId: number; memberId: string }): Promise<unknown>;
    leaveGroup(request: { groupId: string; memberId: string }): Promise<unknown>;
  }
  export default class Cluster {
    constructor(options: Record<string, unknown>);
    connect(): Promise<void>;
    disconnect(): Promise<void>;
    addMultipleTargetTopics(topics: string[]): Promise<void>;
    refreshMetadata(): Promise<void>;
    refreshMetadataIfNecessary(): Promise<void>;
    findLeaderForPartitions(topic: string, partitions: number[]): Record<string, number[]>;
    findBroker(options: { nodeId: string }): Promise<Broker>;
    findGroupCoordinator(options: { groupId: string }): Promise<Broker>;
    fetchTopicsOffset(
      topics: { topic: string; partitions: { partition: number }[]; fromBeginning?: boolean }[],
    ): Promise<{ topic: string; partitions: { partition: number; offset: string }[] }[]>;
  }
}

declare module "kafkajs/src/loggers/index.js" {
  interface Loggers {
    createLogger(options: { level: number; logCreator: (level: number) => (entry: unknown) => void }): unknown;
  }
  const loggers: Loggers;
  export default loggers;
}

declare module "kafkajs/src/network/socketFactory.js" {
  const create: () => unknown;
  export default create;
}

declare module "kafkajs/src/protocol/requests/apiKeys.js" {
  const keys: { readonly Fetch: number };
  export default keys;
}

declare module "kafkajs/src/protocol/requests/fetch/index.js" {
  const forms: import("kafkajs/src/cluster/index.js").RequestForms;
  export default forms;
}

declare module "kafkajs/src/protocol/decoder.js" {
  export default class Decoder {
    constructor(bytes: Buffer);
    readInt16(): number;
    readInt32(): number;
    readString(): string | null;
    readBytes(): Buffer | null;
    readArray<T>(one: (decoder: Decoder) => T): T[];
    forward(bytes: number): void;
  }
}

declare module "kafkajs/src/protocol/recordBatch/crc32C/crc32C.js" {
  const crc32C: (bytes: Uint8Array) => number;
  export default crc32C;
}

declare module "kafkajs/src/protocol/message/compression/index.js" {
  interface Codec {
    compress(encoder: { buffer: Buffer }): Promise<Buffer>;
    decompress(bytes: Buffer): Promise<Buffer>;
  }
  const compression: {
    Codecs: Record<number, () => Codec>;
    lookupCodecByAttributes(attributes: number): Codec | null;
  };
  export default compression;
}
