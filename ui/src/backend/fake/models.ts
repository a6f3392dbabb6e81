import type { ApiError, ModelEntry, RemovedModel, TurnEvent } from '../types';
import type { FakeOptions } from './options';

export const SMOL = 'SmolLM2-135M-Instruct';
export const QWEN = 'Qwen3-0.6B';
const HOME = '/home/you';

type File = Pick<ModelEntry, 'name' | 'path' | 'architecture' | 'usable' | 'problem' | 'warning' | 'file_bytes' | 'added'>;
type Fallback = Extract<TurnEvent, { event: 'model_fallback' }>;

/** The model files of a machine, the loaded model, and the default model of conversations that have none. */
export class FakeModels {
  loaded: string | null;
  /** Mutable, because tests add and remove files behind the window's back. */
  files: File[];
  private chosen: string | null;

  constructor(options: FakeOptions) {
    this.files = options.noModel ? [] : [usable(SMOL, `/models/${SMOL}.Q8_0.gguf`, 'llama', 144_811_456), usable(QWEN, `/models/${QWEN}.Q4_K_M.gguf`, 'qwen3', 484_220_320)];
    if (options.foreignFiles) this.files.push(...foreign());
    this.loaded = options.noModel ? null : SMOL;
    this.chosen = this.loaded;
  }

  list(): ModelEntry[] {
    const isDefault = this.default()?.name;
    const all = this.files.map((file) => ({ ...file, loaded: file.name === this.loaded, is_default: file.name === isDefault }));
    return all.sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** The loaded model. */
  entry(): ModelEntry | undefined {
    return this.list().find((model) => model.loaded);
  }

  find(name: string): File {
    const found = this.files.find((file) => file.name === name);
    if (found) return found;
    const names = this.files.map((file) => file.name).join(', ');
    throw missing(`there is no model named ${name}${names ? `; there is ${names}` : ', nor any other'}`);
  }

  /** Refuses an unknown model, and one whose file cannot be used. */
  require(name: string): void {
    const file = this.find(name);
    if (!file.usable) throw refusal(file);
  }

  load(name: string): void {
    this.require(name);
    this.loaded = name;
  }

  choose(name: string): void {
    this.chosen = name;
  }

  add(typed: string): ModelEntry {
    const path = absolute(typed);
    const found = (name: string) => this.list().find((model) => model.name === name) as ModelEntry;
    const same = this.files.find((file) => file.path === path);
    if (same) return found(same.name);
    const name = (path.split(/[\\/]/).pop() ?? path).replace(/\.gguf$/, '');
    // The fake disk has only these three folders.
    if (!/^\/(models|tmp|home\/you)\//.test(path)) throw { code: 'model_file_missing', message: `there is no model file at ${path}` };
    if (!path.endsWith('.gguf')) throw { code: 'model_not_gguf', message: `${path} is not a GGUF file but text; choose a GGUF file of the model` };
    const taken = this.files.find((file) => file.name === name);
    if (taken?.usable) throw { code: 'invalid_argument', message: `there is already a model named ${name} at ${taken.path}; rename the new file first, or remove the old one` };
    this.chosen = this.default()?.name ?? this.chosen;
    this.files = [...this.files.filter((file) => file !== taken), { ...usable(name, path, 'llama', 1_240_000_000), added: true }];
    return found(name);
  }

  remove(name: string, deleteFile: boolean): RemovedModel {
    const file = this.find(name);
    if (!file.added && !deleteFile) throw { code: 'invalid_argument', message: `${file.path} lies in the models folder, so that removing it deletes the file; say --delete-file for that, or move it elsewhere` };
    this.files = this.files.filter((one) => one !== file);
    if (this.loaded === name) this.loaded = null;
    return { name, path: file.path, deleted: !file.added };
  }

  /** Loads the model that answers in a conversation bound to `wanted`; returns a fallback event if it is another one. */
  answer(wanted: string | null): Fallback | null {
    const asked = wanted ?? this.chosen;
    let refused: ApiError | null = null;
    if (asked !== null) {
      try {
        this.load(asked);
        return null;
      } catch (cause) {
        refused = cause as ApiError;
      }
    }
    const other = this.default();
    if (!other) throw missing(this.files.length ? `none of the ${this.files.length} models can be used` : 'no model is installed; put a GGUF file into /models or add one by its path');
    this.loaded = this.chosen = other.name;
    return refused && asked ? { event: 'model_fallback', wanted: asked, code: refused.code, reason: refused.message, model: other.name } : null;
  }

  /** Loads the model of an opened conversation. A conversation that is only hovered does not replace a loaded model. */
  look(wanted: string | null, opened: boolean): void {
    if (!opened && this.loaded !== null && wanted !== null && wanted !== this.loaded) return;
    this.answer(wanted);
  }

  private default(): File | undefined {
    const usable = this.files.filter((file) => file.usable).sort((a, b) => (a.name < b.name ? -1 : 1));
    return usable.find((file) => file.name === this.chosen) ?? usable[0];
  }
}

function usable(name: string, path: string, architecture: string, file_bytes: number): File {
  return { name, path, architecture, usable: true, problem: null, warning: null, file_bytes, added: false };
}

/** Files in the models folder that cannot be used, and one that needs a warning. */
function foreign(): File[] {
  const unusable = (name: string, architecture: string, problem: string): File => {
    const path = `/models/${name}.gguf`;
    return { name, path, architecture, usable: false, problem: `${path} ${problem}`, warning: null, file_bytes: 912_000_000, added: false };
  };
  return [
    unusable('A-partial', 'incomplete download', 'is incomplete: it ends inside the header; wait for its download to end, or fetch it again'),
    unusable('mmproj-F16', 'projector, no model', 'is a projector, which turns pictures or sound into what a model reads, and no model by itself; choose the model that it came with'),
    { ...usable('Odd-template', '/models/Odd-template.gguf', 'llama', 700_000_000), warning: 'its chat template cannot be used (syntax error: unexpected end of block (in chat:1)); ChatML is used instead, so that replies may be worse than they could be' },
    unusable('Gemma-3-4b', 'gemma3 is not supported', 'cannot be used: its architecture is "gemma3"; supported are llama, qwen2 and qwen3'),
  ];
}

/** Parses a typed path by the rules of the shell. */
function absolute(typed: string): string {
  let text = typed.trim();
  if (/^(["']).+\1$/.test(text)) text = text.slice(1, -1);
  if (/^file:\/\/(localhost)?\//i.test(text)) text = decodeURIComponent(text.replace(/^file:\/\/(localhost)?/i, ''));
  return text.replace(/^~(?=\/|$)/, HOME);
}

function missing(message: string): ApiError {
  return { code: 'model_missing', message };
}

function refusal({ name, problem }: File): ApiError {
  return { code: name.startsWith('A-') ? 'model_incomplete' : name.startsWith('mmproj') ? 'model_projector' : 'model_unsupported', message: problem ?? '' };
}
