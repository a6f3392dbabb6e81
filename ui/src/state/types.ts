// Components take their types from here: they may not look past the state.
export type * from '../backend/types';
