import { getContext, setContext } from 'svelte';
import type { App } from './app.svelte';

const KEY = Symbol('app');

export function provideApp(app: App): App {
  return setContext(KEY, app);
}

export function useApp(): App {
  return getContext<App>(KEY);
}
