/**
 * The inner part of kafkajs 2.2.4 (pinned exactly) that its public interface does not give: a fetch from any offset of
 * any partition without a consumer group, which is what a log is read by when positions come from the commit chain.
 */
declare module "kafkajs/src/cluster/index.js" {
  interface FetchedMessage {
    offset: string;
    timestamp: string;
    key: Buffer | null;
    value: Buffer | null;
    headers: Record<string, Buffer | string | undefined>;
    isControlRecord?: boolean;
  }
  interface Broker {
    fetch(request: {
      isolationLevel: 0 | 1;
      maxWaitTime: number;
      minBytes: number;
      maxBytes: number;
      topics: { topic: string; partitions: { partition: number; fetchOffset: string; maxBytes: number }[] }[];
    }): Promise<{
      responses: { topicName: string; partitions: { partition: number; messages: FetchedMessage[] }[] }[];
    }>;
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
