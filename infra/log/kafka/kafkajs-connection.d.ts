/** One connection of kafkajs 2.2.4 to a broker: what `connection.ts` mends of it. */
declare module "kafkajs/src/network/connection.js" {
  export default class Connection {
    constructor(options: Record<string, unknown>);
    /** Bytes of an answer that has not come whole yet. */
    chunks: Buffer[];
    bytesBuffered: number;
    bytesNeeded: number;
    host: string;
    port: number;
    socket?: import("node:net").Socket;
    isConnected(): boolean;
    connect(): Promise<true>;
    disconnect(): Promise<true>;
    send(request: unknown): Promise<unknown>;
    /** Ends every request that waits for its answer, or to be sent. */
    rejectRequests(error: Error): void;
  }
}

declare module "kafkajs/src/errors.js" {
  export class KafkaJSConnectionClosedError extends Error {
    constructor(message: string, of: { host: string; port: number });
  }
}
