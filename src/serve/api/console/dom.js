// The three small libraries the console is made with, under one roof: elements, state, and templates.
import { h, render, Fragment } from "./preact.js";
import { useCallback, useEffect, useMemo, useRef, useState } from "./hooks.js";
import htm from "./htm.js";

const html = htm.bind(h);
export { html, render, Fragment, useCallback, useEffect, useMemo, useRef, useState };
