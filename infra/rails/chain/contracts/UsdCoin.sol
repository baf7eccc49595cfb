// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.26;

import {Usdc} from "./Usdc.sol";

/**
 * Stand-in for USDC as it is on main networks, domain "USD Coin": nobody may mint. Who runs the node of a test writes
 * balances into its storage.
 */
contract UsdCoin is Usdc {
    constructor() Usdc("USD Coin") {}

    function name() public pure override returns (string memory) {
        return "USD Coin";
    }

    /// EIP-2612 names it, and the token that this one stands for has it.
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }
}
