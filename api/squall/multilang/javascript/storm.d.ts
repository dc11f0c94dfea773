/** Spouts and bolts in JavaScript: see storm.js. */

export type Done = (error?: unknown) => void;
export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 0 | 1 | 2 | 3 | 4;

export class Tuple {
  readonly id: string;
  readonly component: string;
  readonly stream: string;
  readonly task: number;
  readonly values: any[];
  readonly fields: string[];
  /** A value by its field, or by its position. Throws RangeError if there is none. */
  get(key: string | number): any;
  readonly isTick: boolean;
}

export interface EmitDetails {
  tuple: any[];
  stream?: string;
  /** Of a direct stream. */
  task?: number;
}

export interface BoltEmitDetails extends EmitDetails {
  anchors?: Tuple | string | Array<Tuple | string>;
  anchorTupleId?: string;
}

export interface SpoutEmitDetails extends EmitDetails {
  id?: any;
}

export class Storm<Details extends EmitDetails = EmitDetails> {
  conf: Record<string, any>;
  context: Record<string, any>;
  readonly taskId: number;
  readonly componentId: string;
  initialize(conf: Record<string, any>, context: Record<string, any>, done: Done): unknown;
  log(message: unknown, level?: LogLevel): void;
  logTrace(message: unknown): void;
  logDebug(message: unknown): void;
  logInfo(message: unknown): void;
  logWarn(message: unknown): void;
  logError(message: unknown): void;
  reportError(error: unknown): void;
  reportMetric(name: string, value: unknown): void;
  emit(details: Details, onTaskIds?: (ids: number[]) => void): void;
  emitDirect(details: Details & { task: number }): void;
  emitForTaskIds(details: Details): Promise<number[]>;
  run(): void;
}

export class Spout extends Storm<SpoutEmitDetails> {
  nextTuple(done: Done): unknown;
  ack(id: any, done: Done): unknown;
  fail(id: any, done: Done): unknown;
  activate(done: Done): unknown;
  deactivate(done: Done): unknown;
}

export class Bolt extends Storm<BoltEmitDetails> {
  process(tup: Tuple, done: Done): unknown;
  ack(tup: Tuple | string): void;
  fail(tup: Tuple | string): void;
  keepAlive(): void;
}

export class BasicBolt extends Bolt {}
