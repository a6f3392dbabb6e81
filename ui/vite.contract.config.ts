import { defineConfig } from 'vite';

// One script that tests/e2e/contract.rs puts into the page of the real window. It is built for that test alone and never shipped.
export default defineConfig({
  logLevel: 'warn',
  publicDir: false,
  build: {
    target: 'safari15',
    outDir: 'dist-contract',
    minify: false,
    lib: { entry: 'tests/contract/window.ts', formats: ['iife'], name: 'contract', fileName: () => 'contract.js' },
  },
});
