import compression from "kafkajs/src/protocol/message/compression/index.js";
import { compress, decompress } from "zstd-napi";

/** Number of zstd among Kafka's codecs. */
const ZSTD = 4;

/** zstd is what the topics are declared with; kafkajs ships without it. */
compression.Codecs[ZSTD] = () => ({
  compress: async (encoder) => compress(encoder.buffer, { compressionLevel: 3 }),
  decompress: async (buffer) => decompress(buffer),
});

/** kafkajs' codecs, with zstd among them, without the client around them. */
export { compression };
