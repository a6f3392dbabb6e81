import type { Backend } from '../backend/backend';
import { problemOf, type Problem } from './problem';
import type { PrivacyState, Secret } from './types';

/** Between two looks while blocks are being rewritten, in milliseconds. */
const INTERVAL = 1000;

/** Whether conversations are encrypted on disk, and changing that. */
export class Privacy {
  state = $state.raw<PrivacyState | null>(null);
  changing = $state(false);
  problem = $state.raw<Problem | null>(null);
  readonly turning: boolean = $derived(this.state?.privacy === 'turning_on' || this.state?.privacy === 'turning_off');

  constructor(private readonly backend: Backend) {}

  /** Looks now, and again and again while a change is going on, until the returned function is called. */
  watch(): () => void {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let ended = false;
    const look = async () => {
      if (!this.state || this.turning) this.state = await this.backend.privacyState().catch(() => this.state);
      if (!ended) timer = setTimeout(look, INTERVAL);
    };
    void look();
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }

  /** Each returns whether it was done. */
  turnOn(secret: Secret): Promise<boolean> {
    return this.change(() => this.backend.protect(secret));
  }

  turnOff(): Promise<boolean> {
    return this.change(() => this.backend.unprotect());
  }

  changeSecret(current: string | null, secret: Secret): Promise<boolean> {
    return this.change(() => this.backend.changeSecret(current, secret));
  }

  private async change(ask: () => Promise<PrivacyState>): Promise<boolean> {
    this.changing = true;
    this.problem = null;
    try {
      this.state = await ask();
      return true;
    } catch (cause) {
      this.problem = problemOf(cause, false);
      return false;
    } finally {
      this.changing = false;
    }
  }
}
