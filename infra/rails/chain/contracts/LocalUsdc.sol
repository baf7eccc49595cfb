// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.26;

import {Usdc} from "./Usdc.sol";

/// Stand-in for USDC on the local chain, domain "USDC". Anybody may mint; this chain has no money on it.
contract LocalUsdc is Usdc {
    constructor() Usdc("USDC") {}

    function name() public pure override returns (string memory) {
        return "USDC";
    }

    function mint(address to, uint256 value) external {
        _mint(to, value);
    }

    /// Lift every account that holds less than its floor to that floor: safe to repeat, needs no read before it.
    function topUp(address[] calldata accounts, uint256[] calldata floors) external {
        for (uint256 i = 0; i < accounts.length; i++) {
            uint256 held = balanceOf(accounts[i]);
            if (held < floors[i]) _mint(accounts[i], floors[i] - held);
        }
    }
}
