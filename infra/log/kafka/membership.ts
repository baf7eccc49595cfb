import kafkajs from "kafkajs";
import type Cluster from "kafkajs/src/cluster/index.js";
import { assignPartitions } from "./assign.ts";

const { AssignerProtocol } = kafkajs;
const { MemberMetadata, MemberAssignment } = AssignerProtocol;

/** Name of our assigner: members that bring another one are refused by the broker. */
const PROTOCOL = "touchstone-cooperative";

/** A group: its name, the topics it is about and the partitions of each. */
export interface Group {
  id: string;
  topics: readonly string[];
  partitions: number;
  /** The broker takes a member for dead after this much silence, ms. */
  sessionMs: number;
}

type Broker = Awaited<ReturnType<Cluster["findGroupCoordinator"]>>;

/** What a member says of itself when it joins, in the bytes that Kafka leaves to the members. */
const claimOf = (owned: readonly number[]): Buffer => Buffer.from(JSON.stringify({ v: 1, owned }));

function ownedOf(userData: Buffer): number[] {
  try {
    const claim = JSON.parse(userData.toString("utf8")) as { owned?: unknown };
    return Array.isArray(claim.owned) ? claim.owned.filter((p): p is number => Number.isInteger(p)) : [];
  } catch {
    // A member that says nothing we can read holds nothing we know of; the chains decide between it and another.
    return [];
  }
}

/**
 * One member's talk with the coordinator of its group (Kafka's classic group protocol: join, sync, heartbeat, leave),
 * without the consumer of kafkajs around it: that one fetches what it is given and has no way to ask for another round.
 */
export class Membership {
  #memberId = "";
  #generation = 0;
  #coordinator: Broker | null = null;

  constructor(
    private readonly cluster: Cluster,
    private readonly group: Group,
  ) {}

  /**
   * One round: join, share out when this member is the leader, hear the own share. Takes as long as the slowest member
   * needs to join, at most a session. @throws what the broker says (`type`), or the connection
   */
  async round(owned: readonly number[]): Promise<{ generation: number; partitions: number[] }> {
    const { id: groupId, sessionMs } = this.group;
    const coordinator = await this.#find();
    const joined = await this.#join(coordinator, owned, { groupId, sessionMs });
    this.#memberId = joined.memberId;
    this.#generation = joined.generationId;
    const leads = joined.leaderId === joined.memberId;
    const { memberAssignment } = await coordinator.syncGroup({
      groupId,
      generationId: joined.generationId,
      memberId: joined.memberId,
      groupAssignment: leads ? this.#share(joined.members) : [],
    });
    return { generation: joined.generationId, partitions: this.#read(memberAssignment) };
  }

  /** A broker gives a new member its id first and wants to hear it again with that. */
  async #join(coordinator: Broker, owned: readonly number[], to: { groupId: string; sessionMs: number }) {
    const metadata = MemberMetadata.encode({
      version: 1,
      topics: [...this.group.topics],
      userData: claimOf(owned),
    });
    const join = (memberId: string) =>
      coordinator.joinGroup({
        groupId: to.groupId,
        sessionTimeout: to.sessionMs,
        rebalanceTimeout: to.sessionMs,
        memberId,
        groupProtocols: [{ name: PROTOCOL, metadata }],
      });
    try {
      return await join(this.#memberId);
    } catch (error) {
      const { type, memberId } = error as { type?: string; memberId?: string };
      if (type !== "MEMBER_ID_REQUIRED" || !memberId) throw error;
      return await join(memberId);
    }
  }

  #share(members: readonly { memberId: string; memberMetadata: Buffer }[]) {
    const claims = members.map(({ memberId, memberMetadata }) => ({
      id: memberId,
      owned: ownedOf(MemberMetadata.decode(memberMetadata)?.userData ?? Buffer.alloc(0)),
    }));
    const shares = assignPartitions(this.group.partitions, claims);
    return [...shares].map(([memberId, partitions]) => ({
      memberId,
      memberAssignment: MemberAssignment.encode({
        version: 1,
        assignment: Object.fromEntries(this.group.topics.map((topic) => [topic, partitions])),
        userData: Buffer.alloc(0),
      }),
    }));
  }

  #read(assignment: Buffer): number[] {
    const [topic] = this.group.topics;
    const shares = assignment.length > 0 ? MemberAssignment.decode(assignment)?.assignment : undefined;
    return [...(shares?.[topic!] ?? [])].sort((a, b) => a - b);
  }

  /** @throws REBALANCE_IN_PROGRESS when another round is due; UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION when we are out */
  async heartbeat(): Promise<void> {
    const coordinator = await this.#find();
    await coordinator.heartbeat({
      groupId: this.group.id,
      groupGenerationId: this.#generation,
      memberId: this.#memberId,
    });
  }

  /** The coordinator may have moved: it is looked for again. With `out`, we join as somebody new. */
  forget(out: boolean): void {
    this.#coordinator = null;
    if (out) this.#memberId = "";
  }

  /** The others hear of it at once; without it they would wait for the session to end. */
  async leave(): Promise<void> {
    if (this.#memberId === "") return;
    const memberId = this.#memberId;
    this.#memberId = "";
    await (await this.#find()).leaveGroup({ groupId: this.group.id, memberId });
  }

  async #find(): Promise<Broker> {
    this.#coordinator ??= await this.cluster.findGroupCoordinator({ groupId: this.group.id });
    return this.#coordinator;
  }
}
