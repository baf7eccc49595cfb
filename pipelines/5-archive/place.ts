import { keysDocument } from "../../infra/keys/keyring.ts";
import type { Keys } from "../../infra/keys/keys.ts";
import type { Store } from "../../infra/store/store.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { ownTrust } from "../4-publish/head.ts";
import { checkpointKeys } from "../4-publish/publisher.ts";
import type { ArchivePlace } from "./archive.ts";

/** Whom we believe when we read our own public log. */
export const trustOf = (origin: string, keys: Keys): CheckpointTrust => ownTrust(checkpointKeys(origin, keys));

/** Where the archive of a deployment lies, and who signs for it. @param baseUrl address that files are served at */
export const archivePlace = (publicStore: Store, keys: Keys, origin: string, baseUrl: string): ArchivePlace => ({
  publicStore,
  trust: trustOf(origin, keys),
  cards: keys.cards,
  jwks: async () => keysDocument(keys.ring),
  baseUrl: baseUrl.replace(/\/+$/, ""),
});
