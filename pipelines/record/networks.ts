/**
 * CAIP-2 ids by network name: the names of x402 version 1 (the whole table of @x402/evm 2.27), and others that
 * sellers use. A name that is not in this table is recorded as the seller wrote it.
 */
export const NETWORK_NAMES: Readonly<Record<string, string>> = {
  ethereum: "eip155:1",
  sepolia: "eip155:11155111",
  base: "eip155:8453",
  "base-mainnet": "eip155:8453",
  "base-sepolia": "eip155:84532",
  optimism: "eip155:10",
  arbitrum: "eip155:42161",
  polygon: "eip155:137",
  "polygon-amoy": "eip155:80002",
  avalanche: "eip155:43114",
  "avalanche-fuji": "eip155:43113",
  abstract: "eip155:2741",
  "abstract-testnet": "eip155:11124",
  sei: "eip155:1329",
  "sei-testnet": "eip155:1328",
  iotex: "eip155:4689",
  peaq: "eip155:3338",
  story: "eip155:1514",
  educhain: "eip155:41923",
  "skale-base-sepolia": "eip155:324705682",
  megaeth: "eip155:4326",
  monad: "eip155:143",
  stable: "eip155:988",
  "stable-testnet": "eip155:2201",
  celo: "eip155:42220",
  flare: "eip155:14",
  bsc: "eip155:56",
  solana: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
  "solana-mainnet": "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp",
  "solana-devnet": "solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1",
  "solana-testnet": "solana:4uhcVJyU9pJkvQyS88uRDiswHXSCkY3z",
};

/**
 * USDC contracts by CAIP-2 id, hex in lower case. USDC has 6 decimals on each of these chains. Only amounts in USDC
 * are converted to dollars.
 */
export const USDC: Readonly<Record<string, string>> = {
  "eip155:1": "0xa0b86991c6218b36c1d19d4a2e9eb0ce3606eb48",
  "eip155:8453": "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913",
  "eip155:84532": "0x036cbd53842c5426634e7929541ec2318f3dcf7e",
  "eip155:10": "0x0b2c639c533813f4aa9d7837caf62653d097ff85",
  "eip155:42161": "0xaf88d065e77c8cc2239327c5edb3a432268e5831",
  "eip155:137": "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359",
  "eip155:43114": "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e",
  "eip155:43113": "0x5425890298aed601595a70ab815c96711a31bc65",
  // The bridged USDC.e of Tempo, which mpp's own package asks for.
  "eip155:4217": "0x20c000000000000000000000b9537d11c60e8b50",
  "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp": "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v",
};

/**
 * Other dollar tokens by CAIP-2 id, hex in lower case, with which the official client pays by default (@x402/evm
 * 2.27, table of default assets). Their decimals differ, so their amounts are not converted to dollars.
 */
export const OTHER_DOLLAR_TOKENS: Readonly<Record<string, readonly string[]>> = {
  "eip155:14": ["0xe7cd86e13ac4309349f30b3435a9d337750fc82d"],
  "eip155:50": ["0xfa2958cb79b0491cc627c1557f441ef849ca8eb1"],
  "eip155:51": ["0xb5ab69f7bbada22b28e79c8ffaece55ef1c771d4"],
  "eip155:143": ["0x754704bc059f8c67012fed69bc8a327a5aafb603"],
  "eip155:988": ["0x779ded0c9e1022225f8e0630b35a9b54be713736"],
  "eip155:1328": ["0x4fcf1784b31630811181f670aea7a7bef803eaed"],
  "eip155:1329": ["0xe15fc38f6d8c56af07bbcbe3baf5708a2bf42392"],
  "eip155:2201": ["0x78cf24370174180738c5b8e352b6d14c83a6c9a9"],
  "eip155:4326": ["0xfafddbb3fc7688494971a79cc65dca3ef82079e7"],
  "eip155:31611": ["0x118917a40faf1cd7a13db0ef56c86de7973ac503"],
  "eip155:31612": ["0xdd468a1ddc392dcdbef6db6e34e89aa338f9f186"],
  "eip155:36900": ["0x9cb8142aebbcdc60af7c97af897a67a8f3ca71c2"],
  "eip155:38833": ["0xa5b8bf902b2844da17d4506cc827f7f1681735e7"],
  "eip155:42220": [
    "0xceba9300f2b948710d2653dd7b07f33a8b32118c",
    "0x48065fbbe25f71c9282ddf5e1cd6d6a887483d5e",
    "0xd2ab3c9a02dbbab236bfec45d1d755df4267f771",
  ],
  "eip155:72344": ["0x33ad9e4bd16b69b5bfded37d8b5d9ff9aba014fb"],
  "eip155:181228": ["0x401ecb1d350407f13ba348573e5630b83638e30d"],
  "eip155:190415": ["0x401ecb1d350407f13ba348573e5630b83638e30d"],
  "eip155:421614": ["0x75faf114eafb1bdbe2f0316df893fd58ce46aa4d"],
  "eip155:723487": ["0x33ad9e4bd16b69b5bfded37d8b5d9ff9aba014fb"],
  "eip155:11142220": ["0x01c5c0122039549ad1493b8220cabedd739bc44e"],
};

/** Symbols of the most used tokens, by contract, hex in lower case. */
const SYMBOLS: Readonly<Record<string, string>> = {
  "0x036cbd53842c5426634e7929541ec2318f3dcf7e": "USDC",
  "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913": "USDC",
  "0x20c000000000000000000000b9537d11c60e8b50": "USDC.e",
  "0x20c0000000000000000000000000000000000000": "pathUSD",
};

/** Returns the symbol of a token's contract, for display; the contract itself if {@link SYMBOLS} lacks it. */
export const symbolOf = (asset: string): string => {
  const key = asset.toLowerCase();
  return Object.hasOwn(SYMBOLS, key) ? SYMBOLS[key]! : asset;
};

/** Returns the first name of a network (CAIP-2 id) in {@link NETWORK_NAMES}, for display; the id if it has none. */
export const networkName = (id: string): string =>
  Object.entries(NETWORK_NAMES).find(([, known]) => known === id)?.[0] ?? id;

/** Returns an address in the form in which addresses are compared: hex in lower case, base58 unchanged. */
export const addressKey = (address: string): string => (/^0x/i.test(address) ? address.toLowerCase() : address);
