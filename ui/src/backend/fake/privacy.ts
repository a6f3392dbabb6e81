import type { PrivacyState, Secret } from '../types';
import type { FakeOptions } from './options';

/** Blocks that are rewritten between two looks. */
const BLOCKS_A_LOOK = 40;
/** The commands that work while the backend is locked. */
const OPEN_WHILE_LOCKED: (string | symbol)[] = ['unlock', 'pageDrawn'];

/** Encryption that changes as the real one does: the state at once, the blocks little by little. */
export class FakePrivacy {
  private privacy: PrivacyState['privacy'] = 'off';
  private secret: Secret | null = null;
  private blocksLeft = 0;
  private locked = false;

  constructor(private readonly options: FakeOptions) {
    if (!options.locked) return;
    this.privacy = 'on';
    this.secret = { with: 'passphrase', passphrase: 'open sesame' };
    this.locked = true;
  }

  /** Wraps the backend: while it is locked, every command but those in `OPEN_WHILE_LOCKED` is refused. */
  guard<T extends object>(backend: T): T {
    const refuse = () => Promise.reject({ code: 'locked', message: 'the conversations are encrypted; their passphrase is needed' });
    return new Proxy(backend, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name);
        return this.locked && typeof value === 'function' && !OPEN_WHILE_LOCKED.includes(name) ? refuse : value;
      },
    });
  }

  unlock(passphrase: string): void {
    if (!this.locked) return;
    if (this.secret?.with === 'passphrase' && this.secret.passphrase !== passphrase) throw { code: 'wrong_passphrase', message: 'this is not the passphrase; nothing was changed' };
    this.locked = false;
  }

  state(): PrivacyState {
    const now = this.now();
    this.blocksLeft = Math.max(0, this.blocksLeft - BLOCKS_A_LOOK);
    if (this.blocksLeft === 0) {
      if (this.privacy === 'turning_on') this.privacy = 'on';
      if (this.privacy === 'turning_off') {
        this.privacy = 'off';
        this.secret = null;
      }
    }
    return now;
  }

  protect(secret: Secret, numBlocks: number): PrivacyState {
    if (this.privacy === 'on' || this.privacy === 'turning_on') throw { code: 'invalid_argument', message: 'the conversations are encrypted already' };
    this.accept(secret);
    this.privacy = 'turning_on';
    this.blocksLeft = numBlocks;
    return this.now();
  }

  unprotect(numBlocks: number): PrivacyState {
    if (this.privacy === 'off' || this.privacy === 'turning_off') throw { code: 'invalid_argument', message: 'the conversations are not encrypted' };
    this.privacy = 'turning_off';
    this.blocksLeft = numBlocks;
    return this.now();
  }

  change(current: string | null, secret: Secret): PrivacyState {
    if (this.secret === null) throw { code: 'invalid_argument', message: 'the conversations are not encrypted' };
    if (this.secret?.with === 'passphrase' && this.secret.passphrase !== current) throw { code: 'wrong_passphrase', message: 'this is not the passphrase; nothing was changed' };
    this.accept(secret);
    return this.now();
  }

  private accept(secret: Secret): void {
    if (secret.with === 'keychain' && this.options.noKeychain) throw { code: 'keychain', message: "the system's keychain cannot be used (it is not there); use a passphrase instead, or unlock the keychain and try again" };
    if (secret.with === 'passphrase' && [...secret.passphrase].length < 8) throw { code: 'invalid_argument', message: 'the passphrase is too short; choose at least 8 characters' };
    this.secret = secret;
  }

  private now(): PrivacyState {
    return { privacy: this.privacy, unlocks: this.secret?.with ?? null, blocks_left: this.blocksLeft };
  }
}
