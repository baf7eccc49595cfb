// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.26;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";

/// What a payer signs, by way of its hash. Member names and order make the type hash: they are the protocol's.
struct PaymentInfo {
    address operator;
    address payer;
    address receiver;
    address token;
    uint120 maxAmount;
    uint48 preApprovalExpiry;
    uint48 authorizationExpiry;
    uint48 refundExpiry;
    uint16 minFeeBps;
    uint16 maxFeeBps;
    address feeReceiver;
    uint256 salt;
}

/// Brings tokens to a place: from the payer (Payment) or back from the operator (Refund).
interface ICollector {
    enum Kind {
        Payment,
        Refund
    }

    function collectorType() external view returns (Kind);
    function collectTokens(PaymentInfo calldata info, address store, uint256 amount, bytes calldata data) external;
}

/**
 * Stand-in on the local chain for version 1.0 of the commerce-payments escrow: its ABI, its errors and events, and what each
 * operation allows whom and when. It is placed by setting code, so nothing it needs may come from a constructor. What it
 * leaves out: `charge`, and a store of its own for each operator; this contract holds all tokens itself.
 */
contract AuthCaptureEscrow is ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    struct State {
        bool hasCollectedPayment;
        uint120 capturableAmount;
        uint120 refundableAmount;
    }

    bytes32 public constant PAYMENT_INFO_TYPEHASH = keccak256(
        "PaymentInfo(address operator,address payer,address receiver,address token,uint120 maxAmount,uint48 preApprovalExpiry,uint48 authorizationExpiry,uint48 refundExpiry,uint16 minFeeBps,uint16 maxFeeBps,address feeReceiver,uint256 salt)"
    );
    uint16 private constant WHOLE_BPS = 10_000;

    mapping(bytes32 paymentInfoHash => State) public paymentState;

    event PaymentAuthorized(
        bytes32 indexed paymentInfoHash, PaymentInfo paymentInfo, uint256 amount, address tokenCollector
    );
    event PaymentCaptured(bytes32 indexed paymentInfoHash, uint256 amount, uint16 feeBps, address feeReceiver);
    event PaymentVoided(bytes32 indexed paymentInfoHash, uint256 amount);
    event PaymentReclaimed(bytes32 indexed paymentInfoHash, uint256 amount);
    event PaymentRefunded(bytes32 indexed paymentInfoHash, uint256 amount, address tokenCollector);

    error InvalidSender(address sender, address expected);
    error ZeroAmount();
    error AmountOverflow(uint256 amount, uint256 limit);
    error ExceedsMaxAmount(uint256 amount, uint256 maxAmount);
    error AfterPreApprovalExpiry(uint48 timestamp, uint48 expiry);
    error InvalidExpiries(uint48 preApproval, uint48 authorization, uint48 refund);
    error FeeBpsOverflow(uint16 feeBps);
    error InvalidFeeBpsRange(uint16 minFeeBps, uint16 maxFeeBps);
    error FeeBpsOutOfRange(uint16 feeBps, uint16 minFeeBps, uint16 maxFeeBps);
    error ZeroFeeReceiver();
    error InvalidFeeReceiver(address attempted, address expected);
    error InvalidCollectorForOperation();
    error TokenCollectionFailed();
    error PaymentAlreadyCollected(bytes32 paymentInfoHash);
    error AfterAuthorizationExpiry(uint48 timestamp, uint48 expiry);
    error InsufficientAuthorization(bytes32 paymentInfoHash, uint256 authorizedAmount, uint256 requestedAmount);
    error ZeroAuthorization(bytes32 paymentInfoHash);
    error BeforeAuthorizationExpiry(uint48 timestamp, uint48 expiry);
    error AfterRefundExpiry(uint48 timestamp, uint48 expiry);
    error RefundExceedsCapture(uint256 refund, uint256 captured);

    modifier onlyBy(address expected) {
        require(msg.sender == expected, InvalidSender(msg.sender, expected));
        _;
    }

    /// Once for a payment, whatever became of it: by the operator, before the payer's consent ends.
    function authorize(PaymentInfo calldata paymentInfo, uint256 amount, address tokenCollector, bytes calldata collectorData)
        external
        nonReentrant
        onlyBy(paymentInfo.operator)
    {
        uint120 held = _amount(amount);
        _requireTerms(paymentInfo, amount);
        bytes32 id = getHash(paymentInfo);
        require(!paymentState[id].hasCollectedPayment, PaymentAlreadyCollected(id));
        paymentState[id] = State(true, held, 0);
        emit PaymentAuthorized(id, paymentInfo, amount, tokenCollector);
        _collect(paymentInfo, amount, tokenCollector, collectorData, ICollector.Kind.Payment);
    }

    /// Any part of what is held, by the operator, before the authorization ends.
    function capture(PaymentInfo calldata paymentInfo, uint256 amount, uint16 feeBps, address feeReceiver)
        external
        nonReentrant
        onlyBy(paymentInfo.operator)
    {
        uint120 taken = _amount(amount);
        _requireFee(paymentInfo, feeBps, feeReceiver);
        uint48 end = paymentInfo.authorizationExpiry;
        require(block.timestamp < end, AfterAuthorizationExpiry(_now(), end));
        bytes32 id = getHash(paymentInfo);
        State storage state = paymentState[id];
        uint120 held = state.capturableAmount;
        require(held >= amount, InsufficientAuthorization(id, held, amount));
        state.capturableAmount = held - taken;
        state.refundableAmount += taken;
        emit PaymentCaptured(id, amount, feeBps, feeReceiver);
        uint256 fee = (amount * feeBps) / WHOLE_BPS;
        IERC20 token = IERC20(paymentInfo.token);
        if (fee > 0) token.safeTransfer(feeReceiver, fee);
        if (amount > fee) token.safeTransfer(paymentInfo.receiver, amount - fee);
    }

    /// All that is still held goes back to the payer: by the operator, at any time.
    function void(PaymentInfo calldata paymentInfo) external nonReentrant onlyBy(paymentInfo.operator) {
        (bytes32 id, uint120 held) = _release(paymentInfo);
        emit PaymentVoided(id, held);
        IERC20(paymentInfo.token).safeTransfer(paymentInfo.payer, held);
    }

    /// The same, by the payer, from the end of the authorization on: nobody can keep money here by doing nothing.
    function reclaim(PaymentInfo calldata paymentInfo) external nonReentrant onlyBy(paymentInfo.payer) {
        uint48 end = paymentInfo.authorizationExpiry;
        require(block.timestamp >= end, BeforeAuthorizationExpiry(_now(), end));
        (bytes32 id, uint120 held) = _release(paymentInfo);
        emit PaymentReclaimed(id, held);
        IERC20(paymentInfo.token).safeTransfer(paymentInfo.payer, held);
    }

    /// Up to what was captured goes back to the payer, out of what a collector brings: by the operator.
    function refund(PaymentInfo calldata paymentInfo, uint256 amount, address tokenCollector, bytes calldata collectorData)
        external
        nonReentrant
        onlyBy(paymentInfo.operator)
    {
        uint120 returned = _amount(amount);
        uint48 end = paymentInfo.refundExpiry;
        require(block.timestamp < end, AfterRefundExpiry(_now(), end));
        bytes32 id = getHash(paymentInfo);
        uint120 captured = paymentState[id].refundableAmount;
        require(captured >= amount, RefundExceedsCapture(amount, captured));
        paymentState[id].refundableAmount = captured - returned;
        emit PaymentRefunded(id, amount, tokenCollector);
        _collect(paymentInfo, amount, tokenCollector, collectorData, ICollector.Kind.Refund);
        IERC20(paymentInfo.token).safeTransfer(paymentInfo.payer, amount);
    }

    /// Names a payment on this chain and in this contract. With the payer left out it is the nonce that the payer signs.
    function getHash(PaymentInfo calldata paymentInfo) public view returns (bytes32) {
        bytes32 said = keccak256(abi.encode(PAYMENT_INFO_TYPEHASH, paymentInfo));
        return keccak256(abi.encode(block.chainid, address(this), said));
    }

    function _now() private view returns (uint48) {
        return uint48(block.timestamp);
    }

    function _amount(uint256 amount) private pure returns (uint120) {
        require(amount != 0, ZeroAmount());
        require(amount <= type(uint120).max, AmountOverflow(amount, type(uint120).max));
        return uint120(amount);
    }

    function _release(PaymentInfo calldata info) private returns (bytes32 id, uint120 held) {
        id = getHash(info);
        held = paymentState[id].capturableAmount;
        require(held != 0, ZeroAuthorization(id));
        paymentState[id].capturableAmount = 0;
    }

    function _requireTerms(PaymentInfo calldata info, uint256 amount) private view {
        require(amount <= info.maxAmount, ExceedsMaxAmount(amount, info.maxAmount));
        require(block.timestamp < info.preApprovalExpiry, AfterPreApprovalExpiry(_now(), info.preApprovalExpiry));
        require(
            info.preApprovalExpiry <= info.authorizationExpiry && info.authorizationExpiry <= info.refundExpiry,
            InvalidExpiries(info.preApprovalExpiry, info.authorizationExpiry, info.refundExpiry)
        );
        require(info.maxFeeBps <= WHOLE_BPS, FeeBpsOverflow(info.maxFeeBps));
        require(info.minFeeBps <= info.maxFeeBps, InvalidFeeBpsRange(info.minFeeBps, info.maxFeeBps));
    }

    function _requireFee(PaymentInfo calldata info, uint16 feeBps, address feeReceiver) private pure {
        require(
            feeBps >= info.minFeeBps && feeBps <= info.maxFeeBps,
            FeeBpsOutOfRange(feeBps, info.minFeeBps, info.maxFeeBps)
        );
        require(feeBps == 0 || feeReceiver != address(0), ZeroFeeReceiver());
        require(
            info.feeReceiver == address(0) || info.feeReceiver == feeReceiver,
            InvalidFeeReceiver(feeReceiver, info.feeReceiver)
        );
    }

    /// Believes no collector: what counts is how much more is here afterwards.
    function _collect(
        PaymentInfo calldata info,
        uint256 amount,
        address collector,
        bytes calldata data,
        ICollector.Kind kind
    ) private {
        require(ICollector(collector).collectorType() == kind, InvalidCollectorForOperation());
        uint256 before = IERC20(info.token).balanceOf(address(this));
        ICollector(collector).collectTokens(info, address(this), amount, data);
        require(IERC20(info.token).balanceOf(address(this)) == before + amount, TokenCollectionFailed());
    }
}
