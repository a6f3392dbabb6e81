// backend/ talks to the shell (or to a fake in memory), state/ decides, components/ draw; markdown/ turns untrusted text
// into safe HTML. Imports go components → state → backend, never back.
import '@fontsource-variable/inter/wght.css';
import '@fontsource-variable/inter/wght-italic.css';
import '@fontsource-variable/jetbrains-mono/wght.css';
import '@fontsource-variable/jetbrains-mono/wght-italic.css';
import './styles/tokens.css';
import './styles/base.css';
import './styles/part.css';
import './styles/prose.css';
import { mount } from 'svelte';
import { openBackend } from './backend';
import Root from './components/Root.svelte';
import { App } from './state/app.svelte';

const app = new App(await openBackend(location.href));
mount(Root, { target: document.getElementById('app') as HTMLElement, props: { app } });
