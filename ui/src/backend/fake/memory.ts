import type { DeviceList, DeviceUse, MemoryLimits, MemoryPlan, MemoryStats, ModelEntry } from '../types';

/** Bytes per token of the default model, by format. */
const KV_BYTES: Record<string, number> = { f16: 23_040, bf16: 23_040, q8: 12_240, q4: 9_360 };
const MACHINE = { total_bytes: 16e9, available_bytes: 11e9, process_bytes: 1e9 };
const SCRATCH_BYTES = 24e6;
const RUNTIME_BYTES = 44e6;
const CONVERSATION_TOKENS = 4096;

const GPU = { choice: 'cuda:0', name: 'NVIDIA GeForce RTX 4070', memory_bytes: 12e9 };
const NO_GPU = 'no NVIDIA driver is installed';

type Sized = Pick<ModelEntry, 'name' | 'file_bytes'>;

/** The memory of a machine with 16 GB, and perhaps of its GPU. */
export class FakeMemory {
  limits: MemoryLimits = { pool_bytes: null, host_bytes: null, disk_bytes: null, idle_minutes: 15, kv: 'q8', device: 'auto' };

  constructor(private readonly hasGpu: boolean) {}

  /** Names of models that take their whole context at once. */
  readonly reserving = new Set<string>();

  /** Refuses invalid limits. */
  check({ pool_bytes, host_bytes, disk_bytes, idle_minutes, kv, device }: MemoryLimits): void {
    const tooSmall = (bytes: number | null) => bytes !== null && bytes < 16 * 1024 * 1024;
    const refuse = (message: string) => {
      throw { code: 'invalid_argument', message };
    };
    if (tooSmall(pool_bytes) || (host_bytes !== 0 && tooSmall(host_bytes)) || tooSmall(disk_bytes)) refuse('memory and disk for conversations must be at least 16 MiB each');
    if (idle_minutes === 0) refuse('give memory back after one minute or more, or never');
    if (!kv.split('/').every((format) => format in KV_BYTES)) refuse(`no format is called ${kv}`);
    if (!/^(auto|cpu|cuda:\d+)$/.test(device)) refuse(`no device is called ${device}; say auto, cpu or cuda:0`);
  }

  plan(model: Sized, context: number): MemoryPlan {
    const fixed = model.file_bytes + SCRATCH_BYTES + RUNTIME_BYTES;
    const kvBytes = context * this.perToken();
    const pool = this.pool();
    const room = Math.max(0, Math.min(pool, 12e9 - fixed));
    const fits = fixed < 12e9 && kvBytes <= room;
    const reserved = this.reserved(model, context);
    return {
      model: model.name,
      context_tokens: context,
      model_context_tokens: context,
      kv: { format: this.limits.kv, bytes_per_token: this.perToken() },
      weights_bytes: model.file_bytes,
      kv_bytes: kvBytes,
      reserved_bytes: reserved,
      scratch_bytes: SCRATCH_BYTES,
      runtime_bytes: RUNTIME_BYTES,
      is_on_device: this.device().name !== null,
      total_bytes: fixed + Math.max(kvBytes, reserved),
      machine: MACHINE,
      others_bytes: 4e9,
      pool_bytes: pool,
      verdict: fits ? { verdict: 'fits' } : { verdict: 'needs', needed_bytes: fixed + kvBytes },
      longest_context_tokens: Math.min(context, Math.floor(room / this.perToken())),
      resident_conversations: Math.floor(room / (CONVERSATION_TOKENS * this.perToken())),
      offload: null,
      host: { budget_bytes: this.host(), conversations: Math.floor(this.host() / (CONVERSATION_TOKENS * this.perToken())) },
      disk: { budget_bytes: this.disk(), used_bytes: 0, free_bytes: 90e9, conversations: Math.floor(this.disk() / (CONVERSATION_TOKENS * this.perToken())) },
    };
  }

  stats(model: ModelEntry | undefined, cachedTokens: number, writing: boolean): MemoryStats {
    const cached = model ? cachedTokens * this.perToken() : 0;
    const active = model && writing ? 64 * 16 * this.perToken() : 0;
    return {
      model: model?.name ?? null,
      weights_bytes: model?.file_bytes ?? 0,
      scratch_bytes: model ? SCRATCH_BYTES : 0,
      pool: { budget_bytes: model ? this.pool() : 0, reserved_bytes: Math.max(cached + active, model ? this.reserved(model) : 0), active_bytes: active, cached_bytes: cached },
      reserves_context: model !== undefined && this.reserving.has(model.name),
      resident_conversations: model ? Math.floor(this.pool() / (CONVERSATION_TOKENS * this.perToken())) : 0,
      host: { budget_bytes: model ? this.host() : 0, reserved_bytes: model ? Math.min(this.host(), 260e6) : 0, active_bytes: 0, cached_bytes: model ? Math.min(this.host(), 250e6) : 0 },
      host_conversations: model ? Math.floor(this.host() / (CONVERSATION_TOKENS * this.perToken())) : 0,
      disk: { budget_bytes: this.disk(), reserved_bytes: cachedTokens * this.perToken(), active_bytes: 0, cached_bytes: cachedTokens * this.perToken() },
      machine: MACHINE,
      others_bytes: 4e9,
      device: model ? this.device() : { name: null, reason: null, num_layers: null, total_bytes: 0, free_bytes: 0, note: null },
    };
  }

  devices(): DeviceList {
    return this.hasGpu ? { devices: [GPU], reason: null } : { devices: [], reason: NO_GPU };
  }

  private device(): DeviceUse {
    if (this.hasGpu && this.limits.device !== 'cpu') return { name: GPU.name, reason: null, num_layers: null, total_bytes: GPU.memory_bytes, free_bytes: 9e9, note: null };
    return { name: null, reason: this.limits.device === 'cpu' ? null : NO_GPU, num_layers: null, total_bytes: 0, free_bytes: 0, note: null };
  }

  private reserved(model: Sized, context = 8192): number {
    return this.reserving.has(model.name) ? (context + 64) * this.perToken() : 0;
  }

  /** Bytes of keys and values. */
  perToken(): number {
    return KV_BYTES[this.limits.kv] ?? KV_BYTES.f16;
  }

  private pool(): number {
    return this.limits.pool_bytes ?? 5e9;
  }

  /** Only beside a GPU. */
  private host(): number {
    return this.device().name === null ? 0 : (this.limits.host_bytes ?? 2.8e9);
  }

  private disk(): number {
    return this.limits.disk_bytes ?? 20e9;
  }
}
