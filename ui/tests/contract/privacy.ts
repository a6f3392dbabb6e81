import type { Secret } from '../../src/backend/types';
import { begin, check, PASSPHRASE, refused, same, say, type Scenario } from './harness';

const secret = (passphrase: string): Secret => ({ with: 'passphrase', passphrase });

export const privacy: Scenario[] = [
  {
    name: 'encryption is turned on and off once, and what makes no sense is refused',
    start: 'ready',
    async run(backend) {
      const { id } = await begin(backend);
      await say(backend, id, 'Say one word.');
      same((await backend.privacyState()).privacy, 'off', 'at first');
      await refused('invalid_argument', {
        'turning off what is off': backend.unprotect(),
        'a short passphrase': backend.protect(secret('short')),
      });
      const on = await backend.protect(secret(PASSPHRASE));
      check(on.privacy === 'on' || on.privacy === 'turning_on', on.privacy);
      same(on.unlocks, 'passphrase', 'what unlocks it');
      await refused('invalid_argument', { 'turning it on again': backend.protect(secret(PASSPHRASE)) });
      await refused('wrong_passphrase', { 'another secret under a wrong one': backend.changeSecret('close sesame', secret('open another')) });
      same((await backend.changeSecret(PASSPHRASE, secret('open another'))).unlocks, 'passphrase', 'changed');
      // The backend is not locked, so unlocking does nothing.
      await backend.unlock('whatever it is');
      await say(backend, id, 'And another.');
      same((await backend.unprotect()).privacy === 'on', false, 'turned off');
      while ((await backend.privacyState()).privacy !== 'off') await new Promise((resolve) => setTimeout(resolve, 20));
      same((await backend.privacyState()).unlocks, null, 'what unlocks it at the end');
    },
  },
  {
    name: 'while it is locked everything is refused, and the right passphrase alone opens it',
    start: 'locked',
    async run(backend) {
      await refused('locked', {
        list: backend.listConversations(),
        create: backend.createConversation(null, null),
        search: backend.search('tea'),
        unsent: backend.unsent(),
        send: backend.sendMessage('c', null, 'x', () => undefined),
        stop: backend.stop('c'),
        models: backend.listModels(),
        load: backend.loadModel('any'),
        memory: backend.memoryStats(),
        limits: backend.memoryLimits(),
        cache: backend.cacheStats(),
        about: backend.appInfo(),
        privacy: backend.privacyState(),
        devices: backend.devices(),
      });
      await refused('wrong_passphrase', { 'a wrong one': backend.unlock('close sesame'), 'an empty one': backend.unlock('') });
      await refused('locked', { 'after a wrong one': backend.listConversations() });
      await backend.pageDrawn();
      await backend.unlock(PASSPHRASE);
      await backend.listConversations();
      same((await backend.privacyState()).unlocks, 'passphrase', 'what unlocks it');
    },
  },
];
