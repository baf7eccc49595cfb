// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.26;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {ERC3009} from "@openzeppelin/contracts/token/ERC20/extensions/draft-ERC3009.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";

/**
 * Stand-in for USDC as it is on main networks: six decimals, EIP-712 domain ("USD Coin", "2"), and nobody may mint. Who
 * runs the node of a test writes balances into its storage. It is placed by setting code, so no constructor ever runs
 * where it stands: nothing it says of itself may live in storage.
 */
contract UsdCoin is ERC3009 {
    constructor() ERC20("", "") EIP712("USD Coin", "2") {}

    function name() public pure override returns (string memory) {
        return "USD Coin";
    }

    function symbol() public pure override returns (string memory) {
        return "USDC";
    }

    function version() external pure returns (string memory) {
        return "2";
    }

    function decimals() public pure override returns (uint8) {
        return 6;
    }

    /// EIP-2612 names it, and the token that this one stands for has it.
    function DOMAIN_SEPARATOR() external view returns (bytes32) {
        return _domainSeparatorV4();
    }
}
