import type { Socket } from "node:net";
import errors from "kafkajs/src/errors.js";
import Connection from "kafkajs/src/network/connection.js";

/**
 * Connections of kafkajs as they have to be where cables are pulled. As they come,
 * - what had come of an answer when its connection ended is put before the answers of the next one, and none of those is
 *   ever understood: every request waits for its whole time, for good;
 * - what an old socket still says, its end above all, is taken for the new one's;
 * - two requests that find it closed open a socket each, and one of the two is never closed;
 * - a request whose time is over leaves it open, though what forgot it on the way (a router) never answers again.
 * This is done to the class itself, since the public client makes its connections out of reach.
 */
const { connect, send } = Connection.prototype;
const LENGTH_BYTES = 4;
const connecting = new WeakMap<Connection, Promise<true>>();

const closed = (one: Connection): Error => new errors.KafkaJSConnectionClosedError("Closed connection", one);

/** Nothing is heard of it any more. */
function quiet(socket: Socket | undefined): void {
  socket?.removeAllListeners();
  // An error that nobody listens to would be the process's end.
  socket?.on("error", () => undefined);
  socket?.destroy();
}

Connection.prototype.connect = function (this: Connection): Promise<true> {
  const begun = connecting.get(this);
  if (begun || this.isConnected()) return begun ?? Promise.resolve(true);
  quiet(this.socket);
  this.chunks = [];
  this.bytesBuffered = 0;
  this.bytesNeeded = LENGTH_BYTES;
  const opening = connect.call(this).finally(() => connecting.delete(this));
  connecting.set(this, opening);
  return opening;
};

Connection.prototype.send = async function (this: Connection, request: unknown): Promise<unknown> {
  try {
    return await send.call(this, request);
  } catch (error) {
    if ((error as Error).name === "KafkaJSRequestTimeoutError") {
      // Answers come in the order of the requests: those that wait behind this one wait for nothing.
      this.rejectRequests(closed(this));
      quiet(this.socket);
      await this.disconnect();
    }
    throw error;
  }
};
